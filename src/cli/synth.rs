//! `parity synth`: a model directory with random weights.

use super::args::SynthArgs;
use super::failure::{Failure, request};
use crate::synth;
use crate::verdict::exit;

/// Makes the directory.
#[expect(clippy::print_stderr, reason = "says what was made")]
pub fn run(args: &SynthArgs) -> Result<u8, Failure> {
    let made = synth::synth(&args.family, &args.size, args.seed, &args.out).map_err(request)?;
    anstream::eprintln!("made {}: {made:?}", args.out.display());
    Ok(exit::PARITY)
}
