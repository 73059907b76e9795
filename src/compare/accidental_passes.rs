//! Ways in which other comparison tools pass by accident, each as a test that this one does
//! not. (Exit codes and devices have theirs where they are decided.)

use super::alignment::{Alignment, Fate, Lists, Presence, QuantityEntry, align};
use super::metrics::{Accuracy, FlipQuestion, Flips, Scores};
use super::{Comparison, GradientDifference, GradientState, Pair, Statistics, Structural};
use crate::numerics::DType;
use crate::tensor::HostTensor;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn compare(dtype: DType, candidate: &[f64], reference: &[f64]) -> Comparison {
    let tensor = |dtype, values: &[f64]| HostTensor::from_f64(dtype, vec![values.len()], values).unwrap();
    let (c, r) = (tensor(dtype, candidate), tensor(DType::F64, reference));
    Pair { candidate: (&c).into(), reference: (&r).into() }.compare()
}

fn statistics(candidate: &[f64], reference: &[f64]) -> Statistics {
    match compare(DType::F32, candidate, reference) {
        Comparison::Statistics(s) => *s,
        other => panic!("{other:?}"),
    }
}

fn entry(name: &str, presence: Presence) -> QuantityEntry {
    QuantityEntry { name: name.to_owned(), presence }
}

fn tensor(name: &str) -> QuantityEntry {
    entry(name, Presence::Tensor { dtype: DType::F32, shape: vec![2], gradient: None })
}

fn aligned(expected: &[&str], candidate: &[QuantityEntry], reference: &[QuantityEntry]) -> Alignment {
    let expected: Vec<String> = expected.iter().map(|s| (*s).to_owned()).collect();
    align(&Lists { expected: &expected, candidate, reference }).unwrap()
}

#[test]
fn an_all_nan_difference_is_not_below_every_threshold() {
    let s = statistics(&[NAN; 4], &[1.0; 4]);
    assert!(s.mismatches() == 4 && s.relative_norm() == INF && s.error_norm() == INF && !s.all_equal());
}

#[test]
fn a_non_finite_value_on_both_sides_is_no_compared_value() {
    for (c, r) in [(NAN, NAN), (INF, INF), (-INF, -INF)] {
        let s = statistics(&[c], &[r]);
        assert_eq!((s.compared_by_value(), s.histogram.quantile(1.0), s.cosine()), (0, None, None));
    }
    for (c, r) in [(NAN, INF), (INF, NAN), (INF, -INF), (INF, 1.0), (1.0, NAN)] {
        assert_eq!(statistics(&[c], &[r]).mismatches(), 1, "{c} {r}");
    }
}

#[test]
fn equal_means_are_not_equal_values() {
    let s = statistics(&[1.0, -1.0, 3.0], &[3.0, 1.0, -1.0]);
    assert_eq!(s.mean_signed_error(), Some(0.0));
    assert!(s.relative_norm() > 1.0 && !s.all_equal());
}

#[test]
fn an_equal_number_of_zeros_is_no_agreement() {
    let s = statistics(&[0.0, 2.0, 0.0, 2.0], &[2.0, 0.0, 2.0, 0.0]);
    assert_eq!((s.candidate.zero, s.reference.zero, s.agreement.exact), (2, 2, 0));
    assert_eq!(s.agreement.nonzero_at_zero, 2);
}

#[test]
fn a_doubled_gradient_has_a_perfect_cosine_and_does_not_agree() {
    let s = statistics(&[2.0, -4.0, 6.0], &[1.0, -2.0, 3.0]);
    assert!((s.cosine().unwrap() - 1.0).abs() < 1e-15);
    assert_eq!(s.relative_norm(), 1.0);
}

#[test]
fn constants_do_not_pass_by_having_no_direction() {
    let s = statistics(&[0.0; 3], &[5.0; 3]);
    assert_eq!((s.cosine(), s.relative_norm()), (None, 1.0));
}

#[test]
fn the_unit_in_the_last_place_is_not_always_that_of_f32() {
    let Comparison::Statistics(s) = compare(DType::F64, &[1.0 + 1e-9], &[1.0]) else { panic!() };
    assert!(s.max_ulp.unwrap().value > 1e6);
}

#[test]
fn a_bound_is_not_multiplied_by_the_number_of_elements() {
    let (mut c, r) = (vec![0.5; 100_000], vec![0.5; 100_000]);
    c[1] = 0.75;
    assert_eq!(statistics(&c, &r).max_absolute.unwrap().value, 0.25);
}

#[test]
fn a_longer_output_is_not_cut_and_a_shape_mismatch_is_not_only_logged() {
    let comparison = compare(DType::F32, &[1.0; 3], &[1.0; 2]);
    assert!(matches!(comparison, Comparison::Structural(Structural::Shape { .. })));
}

#[test]
fn an_empty_comparison_is_not_true_of_all() {
    assert_eq!(compare(DType::F32, &[], &[]), Comparison::Empty);
    let coverage = aligned(&[], &[], &[]).coverage;
    assert!(coverage.is_void() && !coverage.is_complete());
    assert_eq!(Accuracy::default().top1_share(), None);
}

#[test]
fn an_output_missing_on_one_side_is_not_dropped() {
    let a = aligned(&["x", "y"], &[tensor("x")], &[tensor("x"), tensor("y")]);
    assert!(matches!(a.rows[1].fate, Fate::Missing { .. }) && !a.coverage.is_complete());
}

#[test]
fn a_quantity_without_a_baseline_is_not_passed() {
    let a = aligned(&["x"], &[tensor("x")], &[]);
    assert!(matches!(a.rows[0].fate, Fate::Missing { .. }) && a.coverage.is_void());
    let a = aligned(&["x"], &[tensor("x"), tensor("y")], &[tensor("x")]);
    assert_eq!((a.coverage.compared, a.coverage.unchecked), (1, 1));
}

#[test]
fn an_unsupported_operator_is_not_a_success() {
    let skipped = entry("x", Presence::Skipped { reason: "no kernel".to_owned() });
    let a = aligned(&["x"], &[skipped], &[tensor("x")]);
    assert_eq!((a.coverage.skipped, a.coverage.compared), (1, 0));
}

#[test]
fn no_gradient_is_not_a_zero_gradient() {
    let zero = HostTensor::from_f64(DType::F32, vec![2], &[0.0, -0.0]).unwrap();
    let (none, zero) = (GradientState::of(None), GradientState::of(Some((&zero).into())));
    assert_eq!(GradientDifference::between(none, zero), GradientDifference::NoneForZero);
    assert!(GradientDifference::between(none, zero).is_structural());
}

#[test]
fn an_equal_metric_does_not_hide_flipped_samples() {
    let (c, r) = ([2.0, 1.0, 1.0, 2.0], [1.0, 2.0, 2.0, 1.0]);
    let scores = |v| Scores::new(v, 2).unwrap();
    let top1 = |v| Accuracy::of(scores(v), &[0, 0]).unwrap().top1;
    assert_eq!(top1(&c), top1(&r));
    let question = FlipQuestion { candidate: scores(&c), reference: scores(&r), floor: &[1e-6], k: 3.0 };
    assert_eq!(Flips::find(&question).unwrap().unexplained, 2);
}
