//! Which trials an operator goes through.
//!
//! The table of small cases (`cases`) is crossed with everything that has
//! made a backend wrong before: each input and the incoming gradient transposed, sliced with
//! an offset, broadcast with stride 0 and reversed; a tensor with another consumer, before
//! and after; the same call again after a call at another shape; NaN, infinities and
//! subnormals among the values. To these come sizes around powers of two and primes at batch
//! 1 and 2 (`sizes`), and long reductions, large tensors, masked rows and means much larger
//! than the deviation (`extremes`).

mod extremes;
mod sizes;

use super::probes::is_exact_on_integers;
use super::trial::{Lane, Trial, Variant};
use super::{Case, Fill, Layout, Placed, cases};
use crate::numerics::{DType, Role};
use crate::program::{Op, OpKind};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every case, a few variants and sizes: what tests can afford.
    Quick,
    /// Everything.
    Full,
}

/// Float dtypes, in the order of tables.
pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// All trials, operator by operator in the order of the set, small ones first.
#[must_use]
pub fn trials(extent: Extent) -> Vec<Trial> {
    let small = cases();
    let sized = sizes::cases(extent);
    let extreme = extremes::cases(extent);
    let mut trials = Vec::new();
    for dtype in FLOATS {
        for (position, case) in small.iter().enumerate() {
            for variant in variants(case, extent) {
                let between = (variant == Variant::Again).then(|| Box::new(between(&small, position)));
                trials.push(Trial { case: case.clone(), dtype, variant, kernels: None, between });
            }
        }
        trials.extend(sized.iter().map(|case| Trial::plain(case.clone(), dtype)));
        let exact = sized.iter().filter(|case| extent == Extent::Full && is_exact_on_integers(&case.op));
        let integers =
            |case: &Case| Trial { variant: Variant::Integers, ..Trial::plain(case.clone(), dtype) };
        trials.extend(exact.map(integers));
        let mode = |case: Case| Trial { variant: Variant::Mode, ..Trial::plain(case, dtype) };
        trials.extend(extremes::modes().into_iter().map(mode));
        let fits = extreme.iter().filter(|(_, dtypes)| dtypes.contains(&dtype));
        trials.extend(fits.map(|(case, _)| Trial::plain(case.clone(), dtype)));
    }
    trials.retain(|trial| !is_identity(trial));
    trials.sort_by_key(|trial| trial.case.op.kind());
    trials
}

/// The trials of `kinds`, for a kernel set of the engine that is not the default one.
#[must_use]
pub fn with_kernels(trials: &[Trial], kernels: &'static str, kinds: &[OpKind]) -> Vec<Trial> {
    let of = trials.iter().filter(|trial| kinds.contains(&trial.case.op.kind()));
    of.map(|trial| Trial { kernels: Some(kernels), ..trial.clone() }).collect()
}

/// A cast to its own dtype does nothing.
fn is_identity(trial: &Trial) -> bool {
    matches!(trial.case.op, Op::Cast { dtype } if dtype == trial.dtype) && trial.variant != Variant::Plain
}

/// A case of the same operator at another shape, if there is one.
fn between(cases: &[Case], position: usize) -> Case {
    let case = &cases[position];
    let others = cases[position + 1..].iter().chain(&cases[..position]);
    let shapes = |case: &Case| -> Vec<Vec<usize>> { case.inputs.iter().map(|i| i.shape.clone()).collect() };
    let mut others = others.filter(|other| other.op.kind() == case.op.kind());
    let different = others.find(|other| shapes(other) != shapes(case));
    different.map_or_else(|| wider(case), Clone::clone)
}

/// The same operator on a batch of twice the size; the case itself if shapes must agree in a
/// way that this breaks.
fn wider(case: &Case) -> Case {
    let mut other = case.clone();
    let first = case.inputs.first().and_then(|i| i.shape.first()).copied();
    for input in &mut other.inputs {
        if let Some(size) = input.shape.first_mut().filter(|size| Some(**size) == first) {
            *size *= 2;
        }
    }
    if other.program().is_ok() { other } else { case.clone() }
}

fn variants(case: &Case, extent: Extent) -> Vec<Variant> {
    let full = extent == Extent::Full;
    let mut variants = vec![Variant::Plain, Variant::Again];
    if is_exact_on_integers(&case.op) {
        variants.push(Variant::Integers);
    }
    let layouts: &[Layout] = if full { &Layout::STRIDED } else { &[Layout::Transposed, Layout::Expanded] };
    for (i, input) in case.inputs.iter().enumerate() {
        for layout in layouts {
            if Placed::new(*layout, &input.shape, &Trial::fixed(case, i)).is_some() {
                variants.push(Variant::Input(i, *layout));
            }
        }
    }
    if let Some(shape) = differentiable_result(case) {
        for layout in layouts {
            if Placed::new(*layout, &shape, &[]).is_some() {
                variants.push(Variant::Incoming(*layout));
            }
        }
        let cast = matches!(case.op, Op::Cast { .. });
        for (i, input) in case.inputs.iter().enumerate().filter(|(_, i)| i.differentiable && !cast) {
            if !full && (i > 0 || input.shape.is_empty()) {
                continue;
            }
            variants.extend([Variant::UsedBefore(i), Variant::UsedAfter(i)]);
        }
    }
    for (i, input) in case.inputs.iter().enumerate() {
        if !has_lanes(case, i) {
            continue;
        }
        let masks = matches!(input.fill, Fill::AdditiveMask | Fill::MaskedRow);
        if !input.fill.is_float() || masks || input.shape.contains(&0) {
            continue;
        }
        let lanes: &[Lane] = if full { &Lane::ALL } else { &[Lane::Nan] };
        // A difference of infinities, or one times zero, is NaN in one formula and not in
        // another; the product of two small factors is 0 in one order and not in another.
        let composed = matches!(case.op.role(), Role::Loss | Role::Attention | Role::Normalisation);
        let defined = |lane: &&Lane| !composed || **lane == Lane::Nan;
        variants.extend(lanes.iter().filter(defined).map(|lane| Variant::Special(i, *lane)));
    }
    variants
}

/// Whether it is defined where a special value goes. A convolution may multiply the zeros of
/// its padding (and an interpolation its zero weights) or leave them out, and `0 · NaN` is NaN
/// only in the first case; class weights and running statistics likewise.
fn has_lanes(case: &Case, input: usize) -> bool {
    let defined = !matches!(case.op.role(), Role::Conv) && !matches!(case.op, Op::UpsampleBilinear2d { .. });
    defined && case.inputs.get(input).is_some_and(|input| input.differentiable)
}

/// Shape of the first result, if it has a gradient.
fn differentiable_result(case: &Case) -> Option<Vec<usize>> {
    if !case.inputs.iter().any(|input| input.differentiable) {
        return None;
    }
    let program = case.program().ok()?;
    let value = program.value(*program.nodes.first()?.outputs.first()?);
    value.dtype.is_float().then(|| value.shape.clone())
}
