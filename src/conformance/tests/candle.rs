//! The faults of candle 0.11.1 on the CPU that the sweep must find by itself.

use super::{named, run};
use crate::conformance::{Fault, Outcome};
use crate::engine::DeviceSpec;
use crate::engine::candle::{CandleEngine, KernelSet};

fn default(trial: &str) -> Outcome {
    run(&CandleEngine::new(&DeviceSpec::CPU).unwrap(), &named(trial))
}

/// As candle's own layers do it: the fused kernel, whether a gradient is wanted or not.
fn fused(trial: &str) -> Outcome {
    let engine = CandleEngine::with_kernels(&DeviceSpec::CPU, KernelSet::Fused).unwrap().candid();
    run(&engine, &named(trial))
}

/// Quantities with a fault of this kind, in order.
fn seen(outcome: &Outcome, fault: Fault) -> Vec<&str> {
    let of_kind = outcome.sightings.iter().filter(|s| s.judgement.fault == Some(fault));
    of_kind.map(|s| s.quantity.as_str()).collect()
}

#[test]
fn fused_norms_and_softmax_lose_their_gradients_without_a_word() {
    for (trial, quantities) in [
        ("layer_norm@f32", &["gradient of x", "gradient of weight", "gradient of bias"][..]),
        ("rms_norm@f32", &["gradient of x", "gradient of weight"]),
        ("softmax@f32", &["gradient of x"]),
    ] {
        assert_eq!(seen(&fused(trial), Fault::NoGradient), quantities, "{trial}");
        assert!(!default(trial).is_wrong(), "{trial}");
    }
}

#[test]
fn the_gradient_of_nearest_upsampling_overwrites_instead_of_adding() {
    let trials = ["upsample_nearest2d+used-before:x@f32", "upsample_nearest2d+used-after:x@f32"];
    let wrong = trials.iter().filter(|trial| !seen(&default(trial), Fault::Value).is_empty());
    assert!(wrong.count() > 0);
    assert!(!default("upsample_nearest2d@f32").is_wrong());
}

#[test]
fn conv1d_with_a_transposed_kernel_is_wrong_forward_and_backward() {
    let outcome = default("conv1d+transposed:weight@f32");
    let wrong = seen(&outcome, Fault::Value);
    assert!(wrong.contains(&"result.0"), "{wrong:?}");
    assert!(wrong.iter().any(|quantity| quantity.starts_with("gradient")), "{wrong:?}");
}

#[test]
fn half_sums_accumulate_in_the_half_type() {
    for dtype in ["f16", "bf16"] {
        assert!(default(&format!("sum/long-ones@{dtype}")).is_wrong());
        let outcome = default(&format!("sum/4096+mode@{dtype}"));
        assert_eq!(seen(&outcome, Fault::ModeMismatch), ["mode"], "{:?}", outcome.mode);
    }
    assert!(!default("sum/long-ones@f32").is_wrong());
}

#[test]
fn the_fused_layer_norm_cancels_where_the_mean_is_large() {
    let trial = "layer_norm/mean-100-f32@f32";
    assert!(seen(&fused(trial), Fault::Value).contains(&"result.0"));
    assert!(!default(trial).is_wrong(), "{:?}", default(trial));
}

#[test]
fn max_and_relu_drop_nan() {
    for trial in ["relu+nan:x@f32", "amax/all+nan:x@f32", "maximum+nan:b@f32", "max_pool2d+nan:x@f32"] {
        assert!(seen(&default(trial), Fault::NonFinite).contains(&"result.0"), "{trial}");
    }
}

#[test]
fn what_is_right_in_candle_stays_right() {
    for trial in [
        "mm@f32",
        "linear@f32",
        "conv2d@f32",
        "gelu@f32",
        "softmax+transposed:x@f32",
        "log_softmax@f32",
        "cross_entropy_loss@f32",
        "sum/long@f32",
        "embedding@f32",
        "add/bias@f32",
        "mm+integers@f16",
        "conv2d+integers@f32",
    ] {
        let outcome = default(trial);
        assert!(!outcome.is_wrong(), "{outcome:?}");
    }
}
