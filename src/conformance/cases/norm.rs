//! Normalisation.

use crate::conformance::Case;
use crate::conformance::Fill::{Float, Positive, Weight};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    let layer = |shape: &[usize]| Op::LayerNorm { normalized_shape: shape.to_vec(), eps: 1e-5 };
    let rms = || Op::RmsNorm { normalized_shape: vec![5], eps: 1e-6 };
    let batch = |training| Op::BatchNorm { training, momentum: 0.1, eps: 1e-5 };
    let running = ["running_mean", "running_var"];
    let channels: [(&str, &[usize], _); 4] = [
        ("weight", &[3], Weight),
        ("bias", &[3], Weight),
        ("running_mean", &[3], Weight),
        ("running_var", &[3], Positive),
    ];
    let [weight, bias, mean, var] = channels;
    vec![
        Case::new(
            layer(&[6]),
            "",
            &[("x", &[2, 3, 6], Float), ("weight", &[6], Weight), ("bias", &[6], Weight)],
        ),
        Case::new(layer(&[6]), "plain", &[("x", &[3, 6], Float)]),
        Case::new(
            layer(&[2, 4]),
            "two-dimensions",
            &[("x", &[3, 2, 4], Float), ("weight", &[2, 4], Weight), ("bias", &[2, 4], Weight)],
        ),
        Case::new(rms(), "", &[("x", &[2, 3, 5], Float), ("weight", &[5], Weight)]),
        Case::new(rms(), "plain", &[("x", &[3, 5], Float)]),
        Case::new(
            Op::GroupNorm { num_groups: 2, eps: 1e-5 },
            "",
            &[("x", &[2, 4, 2, 3], Float), ("weight", &[4], Weight), ("bias", &[4], Weight)],
        ),
        Case::new(Op::GroupNorm { num_groups: 1, eps: 1e-5 }, "plain", &[("x", &[2, 3, 4], Float)]),
        Case::new(batch(false), "", &[("x", &[2, 3, 2, 2], Float), weight, bias, mean, var])
            .constant(&running),
        Case::new(batch(true), "training", &[("x", &[3, 3, 2, 2], Float), weight, bias, mean, var])
            .constant(&running),
        Case::new(batch(true), "training-features", &[("x", &[5, 3], Float), weight, bias, mean, var])
            .constant(&running),
    ]
}
