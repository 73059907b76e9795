//! Losses.

use crate::conformance::Case;
use crate::conformance::Fill::{Even, Float, Index, LogProbability, Positive, Probability, Target};
use crate::program::{LossReduction, Op};

const IGNORE: i64 = -100;

pub(super) fn cases() -> Vec<Case> {
    use LossReduction::{BatchMean, Mean, Sum};
    let cross =
        |label_smoothing, reduction| Op::CrossEntropy { ignore_index: IGNORE, label_smoothing, reduction };
    let nll = |reduction| Op::NllLoss { ignore_index: IGNORE, reduction };
    let logits = ("logits", &[4, 5][..], Float);
    let logs = ("log_probabilities", &[4, 5][..], LogProbability);
    let target = ("target", &[4][..], Index { below: 5 });
    let ignoring = ("target", &[4][..], Target { below: 5, ignore: IGNORE });
    let weight = ("weight", &[5][..], Positive);
    let (a, b) = (("input", &[3, 4][..], Float), ("target", &[3, 4][..], Even));
    let (log_p, p) = (("input", &[3, 4][..], LogProbability), ("target", &[3, 4][..], Probability));
    vec![
        Case::new(cross(0.0, Mean), "", &[logits, target]),
        Case::new(cross(0.0, Sum), "sum", &[logits, ignoring]),
        Case::new(cross(0.0, Mean), "ignore-index", &[logits, ignoring]),
        Case::new(cross(0.1, Mean), "label-smoothing", &[logits, ignoring]),
        Case::new(cross(0.1, Mean), "everything", &[logits, ignoring, weight]).constant(&["weight"]),
        Case::new(nll(Mean), "", &[logs, target]),
        Case::new(nll(Mean), "weighted", &[logs, ignoring, weight]).constant(&["weight"]),
        Case::new(nll(Sum), "sum", &[logs, ignoring]),
        Case::new(Op::MseLoss { reduction: Mean }, "", &[a, b]),
        Case::new(Op::MseLoss { reduction: Sum }, "sum", &[a, b]),
        Case::new(Op::L1Loss { reduction: Mean }, "", &[a, b]),
        Case::new(Op::L1Loss { reduction: Sum }, "sum", &[a, b]),
        Case::new(Op::SmoothL1Loss { beta: 0.75, reduction: Mean }, "", &[a, b]),
        Case::new(Op::SmoothL1Loss { beta: 0.0, reduction: Sum }, "absolute", &[a, b]),
        Case::new(Op::BceWithLogits { reduction: Mean }, "", &[a, p]),
        Case::new(Op::BceWithLogits { reduction: Sum }, "sum", &[a, p]),
        Case::new(Op::KlDiv { log_target: false, reduction: BatchMean }, "batchmean", &[log_p, p]),
        Case::new(Op::KlDiv { log_target: false, reduction: Mean }, "", &[log_p, p]),
        Case::new(
            Op::KlDiv { log_target: true, reduction: Sum },
            "log-target",
            &[log_p, ("target", &[3, 4], LogProbability)],
        ),
    ]
}
