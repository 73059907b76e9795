//! Each check on a fault that it must see, and nothing on an engine without one.

use super::simulated::{Backward, Forward, Rounded, Seen, Simulated};
use super::{Extent, named, run, sweep, wrong};
use crate::conformance::probes::Operands;
use crate::conformance::{Fault, Outcome, Status};
use crate::numerics::DType;
use crate::program::{Op, OpKind};
use crate::tensor::HostTensor;

#[test]
fn a_correct_engine_is_right_in_every_trial_of_the_quick_selection() {
    let engine = Simulated::default();
    let outcomes: Vec<Outcome> =
        sweep::trials(Extent::Quick).iter().map(|trial| run(&engine, trial)).collect();
    let found = wrong(&outcomes);
    assert!(found.is_empty(), "{}:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
    let untested: Vec<String> = outcomes
        .iter()
        .filter(|o| o.forward == Status::Untested || o.backward == Status::Untested)
        .map(|o| format!("{}: {:?}", o.trial, o.reason))
        .collect();
    assert!(untested.is_empty(), "{}", untested.join("\n"));
}

fn forward(fault: Forward, trial: &str) -> Outcome {
    run(&Simulated { forward: Some(fault), ..Simulated::default() }, &named(trial))
}

fn backward(fault: Backward, trial: &str) -> Outcome {
    run(&Simulated { backward: Some(fault), ..Simulated::default() }, &named(trial))
}

/// The trial sees the fault, and the same case without its special respect does not.
fn sees(outcome: &Outcome, fault: Fault) {
    let faults: Vec<_> = outcome.sightings.iter().filter_map(|s| s.judgement.fault).collect();
    assert!(faults.contains(&fault), "{}: {:?}", outcome.trial, outcome.sightings);
    assert!(outcome.is_wrong());
}

fn is_right(outcome: &Outcome) {
    assert!(outcome.forward == Status::Right || outcome.forward == Status::Close, "{outcome:?}");
}

/// Shifts the result if an argument was made by `by`.
fn shifted_if(seen: &Seen<'_>, values: &mut [f64], by: OpKind) {
    if seen.op.kind() == OpKind::Softmax && seen.inputs.iter().any(|t: &&Rounded| t.from == Some(by)) {
        values.rotate_left(1);
    }
}

#[test]
fn a_kernel_that_ignores_strides_is_seen_in_the_layout_that_it_ignores() {
    let faults: [(Forward, &str); 4] = [
        (|seen, v| shifted_if(seen, v, OpKind::Permute), "transposed"),
        (|seen, v| shifted_if(seen, v, OpKind::Slice), "sliced"),
        (|seen, v| shifted_if(seen, v, OpKind::Expand), "expanded"),
        (|seen, v| shifted_if(seen, v, OpKind::Flip), "reversed"),
    ];
    for (fault, layout) in faults {
        let case = if layout == "expanded" { "softmax/inner" } else { "softmax" };
        sees(&forward(fault, &format!("{case}+{layout}:x@f32")), Fault::Value);
        is_right(&forward(fault, &format!("{case}@f32")));
    }
}

/// Half of the gradient if the operator's result went through `by`.
fn halved_if(history: &[OpKind], values: &mut [f64], by: OpKind) {
    let after = history.iter().skip_while(|kind| **kind != OpKind::Gelu).any(|kind| *kind == by);
    if after {
        for v in values {
            *v *= 0.5;
        }
    }
}

#[test]
fn a_backward_that_ignores_strides_of_the_incoming_gradient_is_seen() {
    let faults: [(Backward, &str); 4] = [
        (
            |h, v| {
                halved_if(h, v, OpKind::Permute);
                true
            },
            "transposed",
        ),
        (
            |h, v| {
                halved_if(h, v, OpKind::Pad);
                true
            },
            "sliced",
        ),
        (
            |h, v| {
                halved_if(h, &mut v[..1], OpKind::Sum);
                true
            },
            "expanded",
        ),
        (
            |h, v| {
                halved_if(h, v, OpKind::Flip);
                true
            },
            "reversed",
        ),
    ];
    for (fault, layout) in faults {
        sees(&backward(fault, &format!("gelu+{layout}:gradient@f32")), Fault::Value);
    }
    is_right(&backward(faults[0].0, "gelu@f32"));
}

#[test]
fn a_gradient_that_overwrites_is_seen_where_a_tensor_has_two_consumers() {
    let lost: Backward = |history, values| {
        if history.iter().filter(|kind| **kind == OpKind::Mul).count() > 1 {
            for v in values.iter_mut() {
                *v -= 0.25;
            }
        }
        true
    };
    for order in ["before", "after"] {
        sees(&backward(lost, &format!("upsample_nearest2d+used-{order}:x@f32")), Fault::Value);
    }
    is_right(&backward(lost, "upsample_nearest2d@f32"));
}

#[test]
fn state_that_a_call_at_another_shape_leaves_behind_is_seen() {
    // One unit in the last place, from the third call on.
    let stale: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Mm && seen.calls > 2 {
            values[0] *= 1.0 + 2f64.powi(-23);
        }
    };
    sees(&forward(stale, "mm+again@f32"), Fault::NotRepeatable);
    is_right(&forward(stale, "mm@f32"));
}

#[test]
fn lost_nans_are_seen() {
    let dropped: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Relu {
            values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
        }
    };
    sees(&forward(dropped, "relu+nan:x@f16"), Fault::NonFinite);
    is_right(&forward(dropped, "relu@f16"));
}

#[test]
fn flushed_subnormals_are_seen() {
    let flushed: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Neg {
            values.iter_mut().filter(|v| v.abs() < 6e-5).for_each(|v| *v = 0.0);
        }
    };
    sees(&forward(flushed, "neg+subnormal:x@f16"), Fault::Value);
}

#[test]
fn infinities_from_an_unsafe_formula_are_seen() {
    let unsafe_sigmoid: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Sigmoid {
            let x = Simulated::values(seen.inputs[0]);
            for (v, x) in values.iter_mut().zip(x) {
                *v = x.exp() / (1.0 + x.exp());
            }
        }
    };
    sees(&forward(unsafe_sigmoid, "sigmoid+infinity:x@f32"), Fault::NonFinite);
    is_right(&forward(unsafe_sigmoid, "sigmoid@f32"));
}

/// A sum that is rounded to the dtype after each addition.
fn narrow_sum(seen: &Seen<'_>, values: &mut [f64]) {
    let Op::Sum { .. } = seen.op else { return };
    let x = Simulated::values(seen.inputs[0]);
    let n = x.len() / values.len();
    for (row, v) in values.iter_mut().enumerate() {
        let add =
            |sum: f64, x: &f64| HostTensor::from_f64(seen.dtype, vec![1], &[sum + x]).unwrap().to_f64()[0];
        *v = x[row * n..(row + 1) * n].iter().fold(0.0, add);
    }
}

#[test]
fn a_half_accumulator_is_seen_on_long_sums_and_named() {
    let fault: Forward = |seen, values| narrow_sum(seen, values);
    for dtype in ["f16", "bf16"] {
        sees(&forward(fault, &format!("sum/long-ones@{dtype}")), Fault::Value);
        let outcome = forward(fault, &format!("sum/4096+mode@{dtype}"));
        sees(&outcome, Fault::ModeMismatch);
        assert_eq!(outcome.mode.unwrap(), format!("{dtype} operands, {dtype} accumulator"));
    }
    is_right(&forward(fault, "sum/4096+mode@f32"));
}

/// A matrix product with operands as a matrix unit reads them.
fn narrow_product(seen: &Seen<'_>, values: &mut [f64], operands: Operands) {
    if seen.op.kind() != OpKind::Mm || seen.dtype != DType::F32 {
        return;
    }
    let [a, b] = [0, 1].map(|i| Simulated::values(seen.inputs[i]));
    let (rows, columns) = (4, 8);
    if values.len() != rows * columns {
        return;
    }
    let inner = a.len() / rows;
    for (at, v) in values.iter_mut().enumerate() {
        let (i, j) = (at / columns, at % columns);
        let term = |k: usize| operands.read(a[i * inner + k]) * operands.read(b[k * columns + j]);
        *v = (0..inner).map(term).sum();
    }
}

#[test]
fn narrow_operands_are_a_mode_mismatch_and_named() {
    let faults: [(Forward, &str); 3] = [
        (|s, v| narrow_product(s, v, Operands::Tf32Truncated), "TF32 operands (truncated)"),
        (|s, v| narrow_product(s, v, Operands::Tf32Rounded), "TF32 operands (rounded)"),
        (|s, v| narrow_product(s, v, Operands::Bf16Rounded), "bf16 operands (rounded)"),
    ];
    for (fault, name) in faults {
        let outcome = forward(fault, "mm/4096+mode@f32");
        sees(&outcome, Fault::ModeMismatch);
        assert!(outcome.mode.as_ref().unwrap().starts_with(name), "{:?}", outcome.mode);
    }
}

#[test]
fn a_variance_in_one_pass_is_seen_where_the_mean_is_large() {
    let one_pass: Forward = |seen, values| {
        let Op::Var { .. } = seen.op else { return };
        let x = Simulated::values(seen.inputs[0]);
        let n = x.len() / values.len();
        #[expect(clippy::cast_possible_truncation, reason = "f32 arithmetic is the fault")]
        for (row, v) in values.iter_mut().enumerate() {
            let (mut sum, mut squares) = (0f32, 0f32);
            for x in &x[row * n..(row + 1) * n] {
                sum += *x as f32;
                squares += (*x * *x) as f32;
            }
            let n = n as f32;
            *v = f64::from((squares - sum * sum / n) / (n - 1.0));
        }
    };
    sees(&forward(one_pass, "var/mean-100-f32@f32"), Fault::Value);
    is_right(&forward(one_pass, "var/last-size-33-batch-2@f32"));
}

#[test]
fn a_tail_that_is_left_out_is_seen_at_sizes_that_are_no_multiple_of_a_tile() {
    let tail: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Tanh && values.len() % 8 == 1 {
            values[..].reverse();
        }
    };
    sees(&forward(tail, "tanh/size-33-batch-1@bf16"), Fault::Value);
    is_right(&forward(tail, "tanh/size-32-batch-1@bf16"));
}

#[test]
fn a_fault_of_the_second_batch_alone_is_seen() {
    let second: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Bmm && values.len() == 12 {
            values[6..].reverse();
        }
    };
    sees(&forward(second, "bmm/inner-size-33-batch-2@f32"), Fault::Value);
    is_right(&forward(second, "bmm/inner-size-33-batch-1@f32"));
}

#[test]
fn an_index_that_wraps_beyond_two_to_the_15_or_16_is_seen() {
    let wraps: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Exp {
            for i in (1 << 15)..values.len().min(1 << 16) {
                values[i] = values[i - (1 << 15)];
            }
        }
    };
    sees(&forward(wraps, "exp/large-33001@f32"), Fault::Value);
    let wraps: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Exp && values.len() > 1 << 16 {
            values[1 << 16] = values[0];
        }
    };
    sees(&forward(wraps, "exp/large-65539@f32"), Fault::Value);
}

#[test]
fn a_masked_row_that_is_not_what_it_must_be_is_seen() {
    let uniform: Forward = |seen, values| {
        if seen.op.kind() == OpKind::ScaledDotProductAttention && seen.inputs.len() > 3 {
            values[0] = f64::NAN;
        }
    };
    sees(&forward(uniform, "scaled_dot_product_attention/masked-row@f32"), Fault::NonFinite);
    let zero: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Softmax {
            values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
        }
    };
    sees(&forward(zero, "softmax/masked-row@f32"), Fault::NonFinite);
}

#[test]
fn a_wrong_step_of_one_in_an_exact_product_is_seen_on_integers_alone() {
    let off: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Linear {
            for v in values.iter_mut() {
                *v *= 1.0 + 2f64.powi(-23);
            }
        }
    };
    sees(&forward(off, "linear+integers@f32"), Fault::Value);
    is_right(&forward(off, "linear@f32"));
}

#[test]
fn a_transform_convolution_is_recognised_and_not_condemned() {
    let transform: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Conv2d {
            for (i, v) in values.iter_mut().enumerate() {
                *v += [1.0, -1.0, 0.5][i % 3] * 2e-6;
            }
        }
    };
    for trial in ["conv2d@f32", "conv2d+integers@f32"] {
        let outcome = forward(transform, trial);
        assert_eq!(outcome.forward, Status::Close, "{outcome:?}");
        assert!(outcome.sightings[0].judgement.note.contains("transform"), "{outcome:?}");
    }
    // The same error where integers are exact is no transform.
    let wrong: Forward = |seen, values| {
        if seen.op.kind() == OpKind::Conv2d && values.iter().any(|v| v.fract() != 0.0) {
            for v in values.iter_mut() {
                *v += 4e-6;
            }
        }
    };
    sees(&forward(wrong, "conv2d@f32"), Fault::Value);
}

#[test]
fn a_missing_gradient_is_not_a_zero_and_a_zero_is_not_missing() {
    sees(&backward(|_, _| false, "silu@f32"), Fault::NoGradient);
    let zero: Backward = |_, values| {
        values.fill(0.0);
        true
    };
    sees(&backward(zero, "silu@f32"), Fault::Value);
}

#[test]
fn a_refusal_of_a_declared_operator_is_a_fault_and_an_undeclared_one_is_unsupported() {
    let refuses = Simulated { refuses: vec![OpKind::Roll], ..Simulated::default() };
    sees(&run(&refuses, &named("roll@f32")), Fault::Refused);
    let lacks = Simulated { lacks: vec![OpKind::Roll], ..Simulated::default() };
    let outcome = run(&lacks, &named("roll@f32"));
    assert_eq!((outcome.forward, outcome.backward), (Status::Unsupported, Status::Unsupported));
    assert_eq!(outcome.reason.as_deref(), Some("not written yet"));
    // A layout that cannot be made says nothing about the operator.
    let refuses = Simulated { refuses: vec![OpKind::Flip], ..Simulated::default() };
    let outcome = run(&refuses, &named("relu+reversed:x@f32"));
    assert_eq!((outcome.forward, outcome.is_wrong()), (Status::Untested, false));
}
