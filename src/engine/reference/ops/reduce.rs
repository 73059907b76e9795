//! Reductions.

use ndarray::{ArrayD, Axis};

use super::{axes, axis};
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site};
use crate::engine::reference::elementwise::{
    axis_back, axis_last, contiguous, from_vec, map, reshaped, slice, stretch, zip,
};
use crate::engine::reference::sum::{sum_over, sum_with_terms};
use crate::engine::reference::tensor::Floats;
use crate::numerics::{max_nan, min_nan};

/// What a reduction over some dimensions does to shapes.
#[derive(Clone)]
struct Plan {
    /// Reduced dimensions.
    dims: Vec<usize>,
    /// Shape of the input.
    full: Vec<usize>,
    /// The same with reduced dimensions of size 1.
    kept: Vec<usize>,
    /// Number of elements that become one.
    count: f64,
}

impl Plan {
    fn new(x: &Floats, dims: &[isize]) -> Result<Self, Fault> {
        let dims = axes(dims, x.ndim())?;
        let full = x.shape().to_vec();
        let mut kept = full.clone();
        let mut count = 1.0;
        for dim in &dims {
            count *= std::mem::replace(&mut kept[*dim], 1) as f64;
        }
        Ok(Self { dims, full, kept, count })
    }

    /// A reduced value, repeated over the dimensions that disappeared.
    fn spread(&self, reduced: &Floats) -> Floats {
        stretch(&reshaped(reduced, &self.kept), &self.full).to_shared()
    }
}

/// Sum over `dims`; 0 over no element.
pub(super) fn sum(x: Arguments<'_>, dims: &[isize], site: &Site<'_>) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let plan = Plan::new(input, dims)?;
    let y = scaled_sum(input, &plan, 1.0, site);
    Ok(Applied::one(y, move |g, want| vec![want.then(0, || plan.spread(g))]))
}

/// Mean over `dims`.
pub(super) fn mean(x: Arguments<'_>, dims: &[isize], site: &Site<'_>) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let plan = Plan::new(input, dims)?;
    let count = plan.count;
    let y = scaled_sum(input, &plan, count, site);
    Ok(Applied::one(y, move |g, want| {
        vec![want.then(0, || plan.spread(&map(g, |g| g / count).into_shared()))]
    }))
}

fn scaled_sum(x: &Floats, plan: &Plan, divisor: f64, site: &Site<'_>) -> Cotangent {
    let sum = sum_with_terms(x, &plan.dims, site.terms);
    let value = map(&sum.value, |v| v / divisor);
    Cotangent::of(value, sum.terms.map(|terms| terms.divided(divisor))).reshaped(site.shape())
}

/// Variance over `dims`, in two passes; NaN where n − correction is 0, as in `ATen`.
pub(super) fn var(
    x: Arguments<'_>,
    dims: &[isize],
    correction: f64,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let plan = Plan::new(input, dims)?;
    let divisor = max_nan(plan.count - correction, 0.0);
    let mean = sum_over(input, &plan.dims).mapv_into(|v| v / plan.count).into_shared();
    let centred = zip(input, &plan.spread(&mean), |v, m| v - m).into_shared();
    let squares = map(&centred, |v| v * v).into_shared();
    let y = sum_over(&squares, &plan.dims).mapv_into(|v| v / divisor).into_shared();
    Ok(Applied::one(reshaped(&y, site.shape()), move |g, want| {
        vec![want.then(0, || zip(&plan.spread(g), &centred, |g, v| g * (2.0 / divisor) * v))]
    }))
}

/// Maximum or minimum over `dims`: NaN wins; the gradient is shared evenly among ties.
pub(super) fn extremum(
    x: Arguments<'_>,
    dims: &[isize],
    site: &Site<'_>,
    largest: bool,
) -> Result<Applied, Fault> {
    let input = x.float(0)?.clone();
    let plan = Plan::new(&input, dims)?;
    let choose = if largest { max_nan } else { min_nan };
    let start = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
    let y = fold_over(&input, &plan.dims, start, choose).into_shared();
    Ok(Applied::by_result(reshaped(&y, site.shape()), move |g, y, want| {
        vec![want.then(0, || {
            let ties = zip(&input, &plan.spread(y), |v, y| f64::from(u8::from(v == y))).into_shared();
            let counts = sum_over(&ties, &plan.dims).into_shared();
            let g = zip(&reshaped(g, counts.shape()), &counts, |g, n| g / n).into_shared();
            zip(&plan.spread(&g), &ties, |g, tie| g * tie)
        })]
    }))
}

fn fold_over(x: &Floats, dims: &[usize], start: f64, f: impl Fn(f64, f64) -> f64) -> ArrayD<f64> {
    let mut dims = dims.to_vec();
    dims.sort_unstable();
    let mut y = x.to_owned();
    for dim in dims.into_iter().rev() {
        y = y.fold_axis(Axis(dim), start, |a, b| f(*a, *b));
    }
    y
}

/// log(sum(exp(x))) over `dims`, shifted by the maximum where that is finite.
pub(super) fn logsumexp(x: Arguments<'_>, dims: &[isize], site: &Site<'_>) -> Result<Applied, Fault> {
    let input = x.float(0)?.clone();
    let plan = Plan::new(&input, dims)?;
    let shift = fold_over(&input, &plan.dims, f64::NEG_INFINITY, max_nan)
        .mapv_into(|m| if m.is_infinite() { 0.0 } else { m })
        .into_shared();
    let powers = zip(&input, &plan.spread(&shift), |v, m| (v - m).exp()).into_shared();
    let y = zip(&sum_over(&powers, &plan.dims).into_shared(), &shift, |s, m| s.ln() + m).into_shared();
    Ok(Applied::by_result(reshaped(&y, site.shape()), move |g, y, want| {
        vec![want.then(0, || {
            let weights = zip(&input, &plan.spread(y), |v, y| (v - y).exp()).into_shared();
            zip(&plan.spread(g), &weights, |g, w| g * w)
        })]
    }))
}

/// Running sum along `dim`.
pub(super) fn cumsum(x: Arguments<'_>, dim: isize) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    Ok(Applied::one(running_sum(input, dim), move |g, want| {
        vec![want.then(0, || {
            let mut g = g.clone();
            g.invert_axis(Axis(dim));
            let mut sum = running_sum(&g, dim);
            sum.invert_axis(Axis(dim));
            sum
        })]
    }))
}

/// Compensated, because a running sum has no pairwise form (Neumaier, ZAMM 54, 1974).
fn running_sum(x: &Floats, dim: usize) -> Floats {
    let rows = contiguous(&axis_last(x.clone(), dim));
    let n = rows.shape().last().copied().unwrap_or(1).max(1);
    let mut values = Vec::with_capacity(rows.len());
    for row in slice(&rows).chunks(n) {
        let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
        for v in row {
            let next = sum + v;
            if next.is_finite() {
                lost += if sum.abs() >= v.abs() { (sum - next) + v } else { (v - next) + sum };
            }
            sum = next;
            values.push(sum + lost);
        }
    }
    axis_back(from_vec(rows.shape(), values).into_shared(), dim)
}
