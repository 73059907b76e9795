//! Which targets a check runs on.

use super::failure::{Failure, request};
use crate::run::{Target, is_here};

/// The engines and devices that are tried when none is named, in the order of the table.
const CANDIDATES: [&str; 6] = [
    "candle:cpu@f32",
    "candle:metal@f32",
    "candle:cuda@f32",
    "torch:cpu@f32",
    "torch:mps@f32",
    "torch:cuda@f32",
];

/// The targets as named, or every engine and device that is here.
pub fn resolve(names: &[String]) -> Result<Vec<Target>, Failure> {
    if names.is_empty() {
        let all = CANDIDATES.iter().map(|name| name.parse::<Target>().map_err(request));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        // Only asked for targets that nobody named: what was named is tried in its own process
        // and reported.
        return Ok(all.into_iter().filter(is_here).collect());
    }
    let mut targets: Vec<Target> = Vec::new();
    for name in names {
        let target: Target = name.parse().map_err(request)?;
        if target.is_reference() {
            return Err(Failure::Request(format!(
                "`{name}` is what everything is compared with and always runs; name targets such as candle:cpu@f32"
            )));
        }
        if targets.contains(&target) {
            return Err(Failure::Request(format!("target `{target}` is named twice; leave one out")));
        }
        targets.push(target);
    }
    Ok(targets)
}
