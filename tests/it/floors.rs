//! Predicted floors on models whose gradients are sums of equal or cancelling terms: correct
//! engines stay within, faults just above rounding do not.

use crate::cli::{CANDLE, Checked};

/// Evaluation mode: the average pool hands one gradient to 784 positions, and the gradient
/// of a normalisation's bias behind it adds them up again. candle adds in a plain loop.
const RESNET: &str = "tests/golden/resnet-basic";

fn targets() -> Vec<&'static str> {
    let mut targets = vec!["--target", CANDLE, "--target", "candle:cpu@f64"];
    if cfg!(feature = "torch") {
        targets.extend(["--target", "torch:cpu@f32", "--target", "torch:cpu@f64"]);
    }
    targets
}

fn check(model: &str, arguments: &[&str]) -> Checked {
    let mut all = vec!["--batch", "2"];
    all.extend(arguments);
    Checked::new(model, &all)
}

#[test]
fn sums_of_equal_gradients_are_within_on_every_engine() {
    for seed in ["0", "1"] {
        let mut arguments = targets();
        arguments.extend(["--seed", seed]);
        let checked = check(RESNET, &arguments);
        assert_eq!(checked.code(), 0, "seed {seed}: {}\n{}", checked.stdout(), checked.stderr());
        assert!(checked.table()["counts"]["within"].as_u64() > Some(100));
    }
}

#[test]
fn a_scale_error_of_a_hundred_thousandth_is_still_outside() {
    let fault = format!("scale:1e-5:batch_norm@{CANDLE}");
    let checked = check(RESNET, &["--target", CANDLE, "--plant", &fault]);
    assert_eq!(checked.code(), 1, "{}\n{}", checked.stdout(), checked.stderr());
    assert_eq!(checked.row("logits")["verdict"], "outside", "{}", checked.stdout());
}

#[test]
fn a_doubled_gradient_of_the_widest_floor_is_outside() {
    let bias = "resnet.encoder.stages.1.layers.0.shortcut.normalization.bias";
    let fault = format!("double-gradient:{bias}@{CANDLE}");
    let checked = check(RESNET, &["--target", CANDLE, "--plant", &fault]);
    assert_eq!(checked.rows_with("outside"), [format!("gradient/{bias}")]);
}
