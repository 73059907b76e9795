//! The command line: one file a subcommand. Nothing else prints, beside `report`'s callers
//! here.

mod args;
mod check;
mod failure;
mod ops;
mod outcome;
mod output;
mod policy;
mod program;
mod progress;
mod summarise;
mod synth;
mod targets;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, PolicyCommand};

/// Parses the command line, does what it says and maps the outcome to an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Command::Check(args) => check::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Policy(PolicyCommand::Show(args)) => policy::show(args),
        Command::Synth(args) => synth::run(args),
        Command::Program(args) => program::run(args),
        Command::Ops(args) => ops::run(args),
        Command::OpsTarget { request } => ops::serve(request),
        Command::Target { plan } => Ok(crate::run::serve(plan, &mut std::io::stdout())),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}
