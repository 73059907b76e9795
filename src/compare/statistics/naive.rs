//! The same figures, one element at a time, as plainly as possible: what the pass is
//! tested against. Shares nothing with it but the result types and `ulp_distance`.

use super::{Agreement, Disagreement, SideClasses};
use crate::numerics::{DType, ulp_distance};
use crate::tensor::HostTensor;

#[derive(Debug, Default)]
pub(super) struct Naive {
    pub candidate: SideClasses,
    pub reference: SideClasses,
    pub agreement: Agreement,
    pub disagreement: Disagreement,
    pub max_absolute: (f64, u64),
    pub max_relative: (f64, u64),
    pub max_ulp: (f64, u64),
    pub positive: u64,
    pub negative: u64,
    pub signed_error: f64,
    pub error: f64,
    pub squares_r: f64,
    pub squares_c: f64,
    pub product: f64,
    /// Binary exponents of the relative errors; infinite where they leave the range.
    pub logs: Vec<f64>,
    /// Mismatch, |e|, index: worst first.
    pub worst: Vec<(bool, f64, u64)>,
}

fn class(side: &mut SideClasses, x: f64, dtype: DType) {
    if x.is_nan() {
        side.nan += 1;
    } else if x.is_infinite() {
        *if x > 0.0 { &mut side.positive_infinity } else { &mut side.negative_infinity } += 1;
    } else {
        side.finite += 1;
        side.zero += u64::from(x == 0.0);
        side.subnormal += u64::from(x != 0.0 && x.abs() < 2f64.powi(dtype.min_exponent()));
    }
}

pub(super) fn measure(candidate: &HostTensor, reference: &HostTensor) -> Naive {
    let dtype = candidate.dtype();
    let mut n = Naive::default();
    for (i, (c, r)) in (0..).zip(candidate.to_f64().into_iter().zip(reference.to_f64())) {
        class(&mut n.candidate, c, dtype);
        class(&mut n.reference, r, reference.dtype());
        // What the candidate's dtype makes of the reference: the rounding of `HostTensor`.
        let rounded = HostTensor::from_f64(dtype, vec![1], &[r]).unwrap().to_f64()[0];
        let mismatch = if c.is_nan() && r.is_nan() {
            n.agreement.nan += 1;
            false
        } else if c.is_nan() {
            n.disagreement.nan_for_number += 1;
            true
        } else if r.is_nan() {
            n.disagreement.number_for_nan += 1;
            true
        } else if r.is_infinite() {
            if c == r {
                *if r > 0.0 {
                    &mut n.agreement.positive_infinity
                } else {
                    &mut n.agreement.negative_infinity
                } += 1;
            } else if c.is_infinite() {
                n.disagreement.opposite_infinities += 1;
            } else {
                n.disagreement.finite_for_infinite += 1;
            }
            c != r
        } else if rounded.is_infinite() {
            *if c == rounded {
                &mut n.agreement.expected_overflow
            } else {
                &mut n.disagreement.missed_overflow
            } += 1;
            c != rounded
        } else if c.is_infinite() {
            n.disagreement.infinite_for_finite += 1;
            true
        } else {
            n.agreement.finite += 1;
            let e = c - r;
            n.agreement.exact += u64::from(e == 0.0);
            n.agreement.nonzero_at_zero += u64::from(e != 0.0 && r == 0.0);
            n.positive += u64::from(e > 0.0);
            n.negative += u64::from(e < 0.0);
            n.signed_error += e;
            n.error += e * e;
            n.squares_r += r * r;
            n.squares_c += c * c;
            n.product += c * r;
            if e != 0.0 {
                n.worst.push((false, e.abs(), i));
                if r != 0.0 {
                    n.logs.push((e / r).abs().log2().floor());
                    n.max_relative = larger(n.max_relative, (e / r).abs(), i);
                }
                n.max_absolute = larger(n.max_absolute, e.abs(), i);
                n.max_ulp = larger(n.max_ulp, ulp_distance(c, r, dtype), i);
            }
            false
        };
        if mismatch {
            n.worst.push((true, f64::INFINITY, i));
        }
    }
    n.worst.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    n.worst.truncate(8);
    n
}

fn larger(best: (f64, u64), value: f64, index: u64) -> (f64, u64) {
    if value > best.0 { (value, index) } else { best }
}
