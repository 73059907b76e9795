//! `parity program`: the operator graph of a model as JSON.

use std::fs;

use super::args::{Mode, ModelArgs, ProgramArgs};
use super::failure::{Failure, request};
use crate::architecture::{self, BuildOptions};
use crate::precision::{self, Precision};
use crate::program::Program;
use crate::verdict::exit;

/// Writes `program.json` to a file or to standard output.
#[expect(clippy::print_stdout, reason = "the output of the subcommand")]
pub fn run(args: &ProgramArgs) -> Result<u8, Failure> {
    let mut program = load(&args.model)?;
    if let Some(name) = &args.precision {
        let precision: Precision = name.parse().map_err(request)?;
        program = precision::rewrite(&program, precision).map_err(request)?;
    }
    let text = program.to_json();
    match &args.out {
        Some(path) => {
            fs::write(path, text).map_err(|source| Failure::Write { path: path.clone(), source })?;
        }
        None => println!("{text}"),
    }
    Ok(exit::PARITY)
}

/// The program of a model directory, as the arguments ask for it.
pub fn load(args: &ModelArgs) -> Result<Program, Failure> {
    architecture::load(&args.model, &options(args)).map_err(request)
}

/// Build options as the arguments ask for them.
pub fn options(args: &ModelArgs) -> BuildOptions {
    BuildOptions {
        batch: args.batch as usize,
        sequence: args.sequence.map(|n| n as usize),
        image: None,
        mode: match args.mode {
            Mode::Train => architecture::Mode::Train,
            Mode::Eval => architecture::Mode::Eval,
        },
    }
}
