//! The real binary, as a user or a CI job calls it.

mod faults;
#[cfg(feature = "torch")]
mod libtorch;
mod ops;
mod outputs;
mod requests;
#[cfg(feature = "torch")]
mod software_mps;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// `parity` with arguments; the cache is this test run's own, so that the reference of a
/// fixture is computed once.
pub fn parity(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary starts")
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parity"));
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PARITY_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    command
}

/// A check of `model` on `target`, with further arguments; output in a fresh directory.
pub struct Checked {
    pub output: Output,
    pub out: tempfile::TempDir,
}

impl Checked {
    pub fn new(model: &str, arguments: &[&str]) -> Self {
        let out = tempfile::tempdir().expect("a temporary directory");
        let path = out.path().to_str().expect("UTF-8").to_owned();
        let mut all = vec!["check", model, "--out", &path];
        all.extend(arguments);
        Self { output: parity(&all), out }
    }

    pub fn code(&self) -> i32 {
        self.output.status.code().expect("no signal")
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.out.path().join(name)
    }

    /// `table.json`.
    pub fn table(&self) -> Value {
        let path = self.file("table.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{}: {e}\n{}\n{}", path.display(), self.stdout(), self.stderr()));
        serde_json::from_str(&text).expect("table.json is JSON")
    }

    /// The row of a quantity.
    pub fn row(&self, quantity: &str) -> Value {
        let table = self.table();
        let rows = table["findings"].as_array().expect("findings").clone();
        rows.into_iter()
            .find(|row| row["quantity"] == quantity)
            .unwrap_or_else(|| panic!("no row {quantity} in\n{}", self.stdout()))
    }

    /// All rows with this verdict: target and quantity.
    pub fn rows_with(&self, verdict: &str) -> Vec<String> {
        let table = self.table();
        let rows = table["findings"].as_array().expect("findings");
        rows.iter()
            .filter(|row| row["verdict"] == verdict)
            .map(|row| row["quantity"].as_str().expect("a name").to_owned())
            .collect()
    }
}

pub const MLP: &str = "fixtures/mlp-tiny";
pub const VIT: &str = "fixtures/digits-vit";
pub const CANDLE: &str = "candle:cpu@f32";
