//! Special values one by one, the pass against the naive form, and determinism.

use proptest::prelude::*;

use super::*;
use crate::compare::{Comparison, TensorView};
use crate::tensor::{Bytes, HostTensor};

fn tensor(dtype: DType, values: &[f64]) -> HostTensor {
    HostTensor::from_f64(dtype, vec![values.len()], values).unwrap()
}

fn statistics(candidate: &HostTensor, reference: &HostTensor) -> Statistics {
    match (Pair { candidate: candidate.into(), reference: reference.into() }).compare() {
        Comparison::Statistics(statistics) => *statistics,
        other => panic!("{other:?}"),
    }
}

fn of(dtype: DType, candidate: &[f64], reference: &[f64]) -> Statistics {
    statistics(&tensor(dtype, candidate), &tensor(DType::F64, reference))
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

#[test]
fn special_values_are_settled_before_arithmetic() {
    for dtype in FLOATS {
        let c = [NAN, NAN, 1.0, INF, -INF, INF, 1.0, -INF, INF, 2.0];
        let r = [NAN, 1.0, NAN, INF, -INF, -INF, INF, 1.0, NAN, 2.0];
        let s = of(dtype, &c, &r);
        let a = Agreement {
            finite: 1,
            exact: 1,
            nan: 1,
            positive_infinity: 1,
            negative_infinity: 1,
            ..Agreement::default()
        };
        let d = Disagreement {
            nan_for_number: 1,
            number_for_nan: 2,
            infinite_for_finite: 1,
            finite_for_infinite: 1,
            opposite_infinities: 1,
            missed_overflow: 0,
        };
        assert_eq!((s.agreement, s.disagreement), (a, d), "{dtype}");
        assert_eq!((s.max_absolute, s.sums.error.value(), s.sums.reference.value()), (None, 0.0, 4.0));
        assert_eq!((s.relative_norm(), s.all_equal()), (INF, false));
        assert_eq!(s.worst.iter().map(|w| w.index).collect::<Vec<_>>(), [1, 2, 5, 6, 7, 8]);
        assert!(s.worst.iter().all(|w| w.mismatch));
        assert_eq!(
            (s.candidate.nan, s.candidate.positive_infinity, s.candidate.negative_infinity),
            (2, 3, 2)
        );
        assert_eq!((s.reference.nan, s.reference.finite), (3, 3));
    }
}

#[test]
fn an_all_nan_difference_does_not_pass() {
    let s = of(DType::F32, &vec![NAN; 5000], &vec![1.0; 5000]);
    assert_eq!((s.mismatches(), s.compared_by_value()), (5000, 0));
    assert_eq!((s.relative_norm(), s.error_norm()), (INF, INF));
    assert!(!s.all_equal() && s.max_absolute.is_none() && s.mean_signed_error().is_none());
}

#[test]
fn nan_on_both_sides_agrees_but_compares_no_value() {
    let s = of(DType::F32, &[NAN; 3], &[NAN; 3]);
    assert_eq!((s.mismatches(), s.compared_by_value(), s.agreement.nan), (0, 0, 3));
    assert_eq!(s.histogram.quantile(0.5), None);
}

#[test]
fn one_nan_among_many_is_found_wherever_it_is() {
    let n = 200_000;
    for at in [0, 1, 1023, 1024, 65_535, 65_536, n - 1] {
        let mut c = vec![1.0; n];
        c[at] = NAN;
        let s = of(DType::F32, &c, &vec![1.0; n]);
        assert_eq!((s.mismatches(), s.worst[0].index), (1, at as u64));
        assert_eq!((s.compared_by_value(), s.agreement.exact), (n as u64 - 1, n as u64 - 1));
    }
}

#[test]
fn an_expected_overflow_is_a_class_of_its_own() {
    let r = [65519.0, 65520.0, -1e6, 1e6, 1e6, 1e6];
    let s = of(DType::F16, &[65504.0, INF, -INF, 65504.0, -INF, NAN], &r);
    assert_eq!((s.agreement.expected_overflow, s.agreement.finite), (2, 1));
    assert_eq!((s.disagreement.missed_overflow, s.disagreement.nan_for_number), (2, 1));
    assert_eq!(s.max_absolute.unwrap(), Extremum { value: 15.0, index: 0 });
    let s = of(DType::F32, &[INF, f64::from(f32::MAX)], &[1e39, f64::from(f32::MAX)]);
    assert_eq!((s.agreement.expected_overflow, s.agreement.exact, s.mismatches()), (1, 1, 0));
    let s = of(DType::F64, &[INF], &[f64::MAX]);
    assert_eq!(s.disagreement.infinite_for_finite, 1);
}

#[test]
fn zeros_and_subnormals_are_counted_on_each_side() {
    let tiny = f64::from(f32::from_bits(3));
    let s = of(DType::F32, &[0.0, -0.0, tiny, 1.0, 0.0], &[0.0, 0.0, 1e-320, 0.0, 5.0]);
    assert_eq!((s.candidate.zero, s.candidate.subnormal), (3, 1));
    assert_eq!((s.reference.zero, s.reference.subnormal), (3, 1));
    assert_eq!((s.agreement.exact, s.agreement.nonzero_at_zero, s.histogram.at_zero), (2, 1, 1));
    assert_eq!(s.histogram.total(), 5);
    assert_eq!(s.max_relative.unwrap().index, 2);
}

#[test]
fn signed_zeros_are_equal() {
    let s = of(DType::F32, &[-0.0, 0.0], &[0.0, -0.0]);
    assert!(s.all_equal());
    assert_eq!((s.positive, s.negative, s.worst.len()), (0, 0, 0));
}

#[test]
fn ulp_is_that_of_the_candidate_at_the_reference() {
    for (dtype, step) in [(DType::F32, -23), (DType::F16, -10), (DType::BF16, -7), (DType::F64, -52)] {
        let s = of(dtype, &[1.0, 2.0 + 2.0 * 2f64.powi(step)], &[1.0, 2.0]);
        assert_eq!(s.max_ulp.unwrap(), Extremum { value: 1.0, index: 1 }, "{dtype}");
    }
    let s = of(DType::F16, &[2f64.powi(-24)], &[0.0]);
    assert_eq!((s.max_ulp.unwrap().value, s.max_relative), (1.0, None));
}

#[test]
fn huge_and_tiny_values_do_not_pass_by_leaving_the_range() {
    for scale in [1e200, 1e-200, 1e300, 1e-310] {
        let s = of(DType::F64, &[3.0 * scale, scale], &[2.0 * scale, scale]);
        assert!((s.relative_norm() - (1.0f64 / 5.0).sqrt()).abs() < 1e-9, "{scale:e}: {}", s.relative_norm());
        assert!((s.cosine().unwrap() - 7.0 / 50f64.sqrt()).abs() < 1e-9);
        assert_eq!((s.positive, s.agreement.exact), (1, 1));
    }
    let s = of(DType::F64, &[f64::MAX, 1.0], &[f64::MIN, 1.0]);
    assert_eq!((s.max_absolute.unwrap().value, s.relative_norm()), (INF, 2.0));
    // A tiny block after an ordinary one, and the other way round.
    let mut r = vec![1.0; 3000];
    r[..1024].fill(1e-250);
    let mut c = r.clone();
    c[5] = 2e-250;
    let s = of(DType::F64, &c, &r);
    assert_eq!((s.max_relative.unwrap(), s.agreement.exact), (Extremum { value: 1.0, index: 5 }, 2999));
}

#[test]
fn scale_and_offset_are_not_hidden_by_a_perfect_correlation() {
    let r: Vec<f64> = (1..=100).map(f64::from).collect();
    let doubled: Vec<f64> = r.iter().map(|x| 2.0 * x).collect();
    let s = of(DType::F32, &doubled, &r);
    assert!((s.cosine().unwrap() - 1.0).abs() < 1e-15);
    assert_eq!((s.relative_norm(), s.error_balance()), (1.0, Some(1.0)));
}

#[test]
fn constants_have_a_cosine_and_zeros_have_none() {
    assert_eq!(of(DType::F32, &[0.0; 4], &[1.0; 4]).cosine(), None);
    assert_eq!(of(DType::F32, &[0.0; 4], &[1.0; 4]).relative_norm(), 1.0);
    assert_eq!(of(DType::F32, &[1.0; 4], &[0.0; 4]).relative_norm(), INF);
    assert_eq!(of(DType::F32, &[0.0; 4], &[0.0; 4]).relative_norm(), 0.0);
}

#[test]
fn a_bound_does_not_grow_with_the_number_of_elements() {
    let n = 100_000;
    let mut c = vec![0.0; n];
    c[77] = 1e-3;
    assert_eq!(of(DType::F64, &c, &vec![0.0; n]).max_absolute.unwrap().value, 1e-3);
}

#[test]
fn integers_are_compared_exactly() {
    let big = 1i64 << 53;
    let c = HostTensor::from_i64(vec![4], &[big + 1, i64::MIN, 0, 3]).unwrap();
    let r = HostTensor::from_i64(vec![4], &[big, i64::MAX, 0, 3]).unwrap();
    let s = statistics(&c, &r);
    // Beyond 2^53 neighbours are the same f64, but not the same integer.
    assert_eq!((s.agreement.exact, s.positive, s.negative), (2, 1, 1));
    assert_eq!(s.max_absolute.unwrap(), Extremum { value: 2f64.powi(64), index: 1 });
    let c = HostTensor::new(DType::U8, vec![2], Bytes::Owned(vec![1, 200].into())).unwrap();
    let r = HostTensor::from_i64(vec![2], &[1, 201]).unwrap();
    assert_eq!(statistics(&c, &r).max_ulp.unwrap(), Extremum { value: 1.0, index: 1 });
}

#[test]
fn positions_are_unravelled() {
    let mut values = vec![0.0; 24];
    values[23] = 1.0;
    let c = HostTensor::from_f64(DType::F32, vec![2, 3, 4], &values).unwrap();
    let r = HostTensor::from_f64(DType::F32, vec![2, 3, 4], &[0.0; 24]).unwrap();
    assert_eq!(statistics(&c, &r).worst[0].position, [1, 2, 3]);
}

/// Values of many kinds, exact in `dtype`.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => -4.0..4.0f64,
        2 => (-1.0..1.0f64, -1060..1000i32).prop_map(|(m, e)| m * 2f64.powi(e)),
        2 => (-1.0..1.0f64, -30..20i32).prop_map(|(m, e)| m * 2f64.powi(e)),
        2 => Just(0.0),
        1 => Just(-0.0),
        1 => prop::sample::select(vec![NAN, INF, -INF, 65504.0, 65519.9, 65520.0, f64::MAX, 6e-8, 1e-40]),
    ]
}

/// A list of pairs: alike, equal, or unrelated; special values sparse or common.
fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let pair = (value(), value(), 0..8u8, -6..7i32).prop_map(|(a, b, kind, k)| match kind {
        0..=3 => (a * (1.0 + f64::from(k) * 1e-4), a),
        4 | 5 => (a, a),
        _ => (b, a),
    });
    let ordinary = (-4.0..4.0f64, -3..4i32).prop_map(|(a, k)| (a + f64::from(k) * 1e-3, a));
    prop_oneof![prop::collection::vec(pair, 1..3000), prop::collection::vec(ordinary, 1..5000)]
}

fn close(a: f64, b: f64, scale: f64) -> bool {
    a == b || (a - b).abs() <= 1e-12 * scale
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pass_agrees_with_the_naive_form(
        pairs in pairs(),
        c_dtype in prop::sample::select(FLOATS.to_vec()),
        r_dtype in prop::sample::select(FLOATS.to_vec()),
    ) {
        let (c, r): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (c, r) = (tensor(c_dtype, &c), tensor(r_dtype, &r));
        let (s, n) = (statistics(&c, &r), naive::measure(&c, &r));
        prop_assert_eq!(s.candidate, n.candidate);
        prop_assert_eq!(s.reference, n.reference);
        prop_assert_eq!(s.agreement, n.agreement);
        prop_assert_eq!(s.disagreement, n.disagreement);
        prop_assert_eq!((s.positive, s.negative), (n.positive, n.negative));
        let found = |e: Option<Extremum>| e.map_or((0.0, 0), |e| (e.value, e.index));
        prop_assert_eq!(found(s.max_absolute), n.max_absolute);
        prop_assert_eq!(found(s.max_ulp), n.max_ulp);
        // A later element may exceed the relative maximum by less than one rounding.
        prop_assert!(close(found(s.max_relative).0, n.max_relative.0, n.max_relative.0));
        let worst: Vec<_> = s.worst.iter().map(|w| (w.mismatch, w.absolute, w.index)).collect();
        prop_assert_eq!(worst, n.worst);
        prop_assert_eq!(s.histogram.total(), n.agreement.finite);
        prop_assert_eq!(s.histogram.exact, n.agreement.exact);
        prop_assert_eq!(s.histogram.at_zero, n.agreement.nonzero_at_zero);
        if n.squares_r < 1e280 && n.squares_c < 1e280 && n.error > 1e-200 {
            prop_assert!(close(s.sums.error.value(), n.error, n.error));
            prop_assert!(close(s.sums.reference.value(), n.squares_r, n.squares_r));
            prop_assert!(close(s.sums.candidate.value(), n.squares_c, n.squares_c));
            prop_assert!(close(s.sums.product.value(), n.product, n.squares_r + n.squares_c));
            prop_assert!(close(s.sums.signed_error.value(), n.signed_error, n.error.sqrt() * 100.0));
        }
        // libm's logarithm may be off by one at a power of two.
        let moved: u64 = (LOWEST_BIN..).zip(&s.histogram.bins).map(|(exponent, count)| {
            let inside = |log: &&f64| log.clamp(-64.0, 63.0) == f64::from(exponent);
            (n.logs.iter().filter(inside).count() as u64).abs_diff(*count)
        }).sum();
        prop_assert!(moved <= 2 + n.logs.len() as u64 / 100, "{} moved", moved);
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let n = 300_000;
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / 2f64.powi(53) - 0.5
    };
    let r: Vec<f64> = (0..n).map(|_| next()).collect();
    let mut c: Vec<f64> = r.iter().map(|x| x * (1.0 + 1e-5 * next())).collect();
    c[123_456] = NAN;
    c[299_999] = 7.0;
    for dtype in [DType::F32, DType::BF16] {
        let (c, r) = (tensor(dtype, &c), tensor(DType::F64, &r));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            // As text, in which every float is exact and NaN equals NaN.
            pool.install(|| format!("{:?}", statistics(&c, &r)))
        };
        let one = with(1);
        for threads in [2, 3, 8] {
            assert_eq!(one, with(threads), "{dtype}, {threads} threads");
        }
        let s = statistics(&c, &r);
        assert_eq!((s.worst[0].index, s.max_absolute.unwrap().index), (123_456, 299_999));
    }
}

#[test]
fn the_result_does_not_depend_on_the_instruction_set() {
    let r: Vec<f64> = (1..20_000).map(|i| f64::from(i).sqrt() - 70.0).collect();
    let c: Vec<f64> = r.iter().enumerate().map(|(i, x)| x * (1.0 + 1e-4 * (i as f64).sin())).collect();
    for dtype in FLOATS {
        let (c, r) = (tensor(dtype, &c), tensor(DType::F64, &r));
        let pair = Pair { candidate: (&c).into(), reference: (&r).into() };
        let with = |arch| format!("{:?}", pass::measure_on(&pair, arch));
        assert_eq!(with(pulp::Arch::Scalar), with(pulp::Arch::new()), "{dtype}");
    }
}

#[test]
fn unaligned_bytes_are_compared_alike() {
    let (c, r) = (tensor(DType::F32, &[1.0, 2.0, 3.0]), tensor(DType::F64, &[1.0, 2.0, 4.0]));
    let shift = |t: &HostTensor| [&[0u8][..], t.bytes()].concat();
    let (cb, rb) = (shift(&c), shift(&r));
    let pair = Pair {
        candidate: TensorView::new(DType::F32, &[3], &cb[1..]).unwrap(),
        reference: TensorView::new(DType::F64, &[3], &rb[1..]).unwrap(),
    };
    assert_eq!(pair.compare(), Comparison::Statistics(Box::new(statistics(&c, &r))));
}
