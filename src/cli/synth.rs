//! `parity synth`: a model directory with random weights.

use super::args::SynthArgs;
use super::failure::{Failure, request};
use crate::synth::{self, SynthOptions};
use crate::verdict::exit;

/// Makes the directory.
pub fn run(args: &SynthArgs) -> Result<u8, Failure> {
    let options = SynthOptions {
        family: args.family.clone(),
        size: args.size.clone(),
        seed: args.seed,
        shards: args.shards as usize,
    };
    let made = synth::synth(&options, &args.out).map_err(request)?;
    anstream::eprintln!(
        "made {}: {} of size {}, {} weights in {} file{}, {} labelled samples",
        args.out.display(),
        args.family,
        args.size,
        made.elements,
        made.shards,
        if made.shards == 1 { "" } else { "s" },
        made.samples
    );
    Ok(exit::PARITY)
}
