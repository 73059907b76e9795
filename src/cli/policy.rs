//! `parity policy show`: the bands that a model would get.

use super::args::PolicyShowArgs;
use super::check;
use super::failure::{Failure, request};
use super::program;
use crate::precision::{self, Precision};
use crate::run::{self, Captures};
use crate::tolerance::bands_for;
use crate::verdict::exit;

/// Prints every quantity's band, its rule and the line that set it.
#[expect(clippy::print_stdout, reason = "the output of the subcommand")]
pub fn show(args: &PolicyShowArgs) -> Result<u8, Failure> {
    let policy = check::policy(args.policy.as_deref())?;
    let precision: Precision = args.precision.parse().map_err(request)?;
    let base = program::load(&args.model)?;
    let precise = precision::rewrite(&base, precision).map_err(request)?;
    let quantities = run::planned_quantities(&base, &precise, Captures::DEFAULT, true);
    let descriptions: Vec<_> = quantities.iter().map(|q| crate::verdict::describe(q, precision)).collect();
    let bands = bands_for(&policy, &descriptions);
    if args.json {
        let rows: Vec<_> = descriptions.iter().zip(&bands).collect();
        let text = serde_json::to_string_pretty(&rows)
            .map_err(|e| Failure::Request(format!("the bands cannot be written as JSON: {e}")))?;
        println!("{text}");
        return Ok(exit::PARITY);
    }
    println!("policy {} {}  precision {precision}", policy.name, policy.hash());
    println!("bands before widening for quantities of few degrees of freedom; unit floor =");
    println!("multiples of the noise that rounding alone causes in this quantity\n");
    let mut previous: Option<(&str, usize)> = None;
    for (description, band) in descriptions.iter().zip(&bands) {
        let here = (band.place.file.as_str(), band.place.line);
        if previous != Some(here) {
            if previous.is_some() {
                println!();
            }
            println!("{} at {}: {}", band.rule, band.place, band.reason);
            previous = Some(here);
        }
        println!(
            "  {:<13} {:<8} pass {:<5} fail {:<5} {}",
            description.role.name(),
            band.unit.name(),
            band.pass,
            band.fail,
            description.name
        );
    }
    Ok(exit::PARITY)
}
