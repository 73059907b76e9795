//! libtorch's switches, its trace and its devices belong to the process: tests that change
//! them get one of their own.

use std::process::Command;

const INSIDE: &str = "PARITY_TEST_IN_OWN_PROCESS";

/// Runs `body` in a process of its own: this one if the test runner gives each test one
/// (nextest does), otherwise the same test binary again, for the test `name` alone.
pub(super) fn in_own_process(name: &str, body: impl FnOnce()) {
    let alone = std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test");
    if alone || std::env::var(INSIDE).is_ok() {
        return body();
    }
    let name = format!("engine::torch::tests::{name}");
    let out = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(stdout.contains("1 passed") && out.status.success(), "{stdout}\n{stderr}");
}
