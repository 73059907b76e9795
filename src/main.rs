//! The `parity` command: see `tensor_parity::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tensor_parity::cli::main()
}
