//! Normalisation: x̂ = (x − μ)·r, y = w·x̂ + b.
//!
//! The difference x − μ carries the error of μ: where the mean is much larger than the
//! deviation that is all there is to see. A one-pass variance, E[x²] − μ², is worse by
//! another factor μ/σ: that is a fault, not rounding.

use super::evaluate::Levels;
use super::lanes::{lanes, larger, root_sum_square};
use super::spread::{Site, Spread};
use crate::numerics::{DType, Role};
use crate::program::Op;

/// Statistics of one group of elements.
struct Group {
    lane: Vec<usize>,
    mean: f64,
    var: f64,
    /// 1/sqrt(var + eps).
    r: f64,
}

/// How one operator normalises.
struct Shape {
    groups: Vec<Group>,
    /// Whether mean and variance are of the data (not given).
    of_data: bool,
    /// Position in weight and bias of each element.
    channel: Vec<usize>,
}

fn shape(site: &Site<'_>) -> Shape {
    let (x, dims) = (site.input(0), site.shape(0));
    let channels = |size: usize| {
        let inner: usize = dims.iter().skip(2).product();
        (0..x.len()).map(|i| i / inner.max(1) % size.max(1)).collect()
    };
    let rows = |n: usize| -> Vec<Vec<usize>> {
        (0..x.len()).collect::<Vec<_>>().chunks(n.max(1)).map(<[usize]>::to_vec).collect()
    };
    let (lanes, channel, eps, centred): (_, Vec<usize>, f64, bool) = match site.op {
        Op::LayerNorm { normalized_shape, eps } | Op::RmsNorm { normalized_shape, eps } => {
            let n = normalized_shape.iter().product::<usize>().max(1);
            let centred = matches!(site.op, Op::LayerNorm { .. });
            (rows(n), (0..x.len()).map(|i| i % n).collect(), *eps, centred)
        }
        Op::GroupNorm { num_groups, eps } => {
            let sample: usize = dims.iter().skip(1).product();
            (rows(sample / (*num_groups).max(1)), channels(dims[1]), *eps, true)
        }
        Op::BatchNorm { eps, .. } => {
            let along: Vec<usize> = (0..dims.len()).filter(|d| *d != 1).collect();
            (lanes(dims, &along), channels(dims[1]), *eps, true)
        }
        _ => (Vec::new(), Vec::new(), 0.0, false),
    };
    let given = matches!(site.op, Op::BatchNorm { training: false, .. });
    let group = |(index, lane): (usize, Vec<usize>)| {
        let n = lane.len() as f64;
        let mut mean = if centred { lane.iter().map(|i| x[*i]).sum::<f64>() / n } else { 0.0 };
        let mut var = lane.iter().map(|i| (x[*i] - mean).powi(2)).sum::<f64>() / n;
        if given {
            (mean, var) = (site.input(3)[index], site.input(4)[index]);
        }
        Group { lane, mean, var, r: 1.0 / (var + eps).sqrt() }
    };
    Shape { groups: lanes.into_iter().enumerate().map(group).collect(), of_data: !given, channel }
}

fn weight(site: &Site<'_>, channel: usize) -> f64 {
    site.input(1).get(channel).copied().unwrap_or(1.0)
}

pub(super) fn forward(site: &Site<'_>, index: usize) -> Spread {
    let shape = shape(site);
    let x = site.input(0);
    if index > 0 {
        return Spread::terms(shape.groups.iter().map(|group| updated(site, group, index)).collect());
    }
    let mut terms = vec![0.0; x.len()];
    for group in &shape.groups {
        for i in &group.lane {
            let (w, b) = (weight(site, shape.channel[*i]), site.input(2).get(shape.channel[*i]));
            let own = if shape.of_data { (x[*i] - group.mean).abs() } else { x[*i].abs() };
            let centred = own.hypot(group.mean) * group.r;
            terms[*i] = (w * centred).hypot(b.copied().unwrap_or(0.0));
        }
    }
    Spread::terms(terms)
}

/// Terms of an updated running mean (1) or variance (2).
fn updated(site: &Site<'_>, group: &Group, index: usize) -> f64 {
    let Op::BatchNorm { momentum, .. } = site.op else { return 0.0 };
    let n = group.lane.len() as f64;
    let channel =
        group.lane.first().map_or(0, |i| i / site.shape(0).iter().skip(2).product::<usize>().max(1))
            % site.shape(0)[1].max(1);
    let old = site.input(index + 2).get(channel).copied().unwrap_or(0.0);
    let new = if index == 1 {
        larger(group.mean, (group.var / n).sqrt())
    } else {
        (group.var * (group.var + group.mean * group.mean)).sqrt()
    };
    ((1.0 - momentum) * old).abs() + (momentum * new).abs()
}

pub(super) fn backward(site: &Site<'_>, index: usize, levels: &Levels<'_>) -> Spread {
    let shape = shape(site);
    match index {
        0 => of_input(site, &shape),
        1 | 2 => of_parameter(site, &shape, index, levels),
        _ => Spread::default(),
    }
}

/// r·(g' − mean(g') − x̂·mean(g'·x̂)) with g' = g·w.
fn of_input(site: &Site<'_>, shape: &Shape) -> Spread {
    let (x, g) = (site.input(0), site.cotangent());
    let mut terms = vec![0.0; x.len()];
    for Group { lane, mean, r, .. } in &shape.groups {
        let n = lane.len() as f64;
        let weighed = |i: &usize| g[*i] * weight(site, shape.channel[*i]);
        let standard = |i: &usize| (x[*i] - mean) * r;
        if !shape.of_data {
            for i in lane {
                terms[*i] = weighed(i).abs() * r;
            }
            continue;
        }
        let root = root_sum_square(lane.iter().map(weighed));
        let total: f64 = lane.iter().map(weighed).sum();
        let slope = lane.iter().map(|i| weighed(i) * standard(i)).sum::<f64>() / n;
        let slope_root = root_sum_square(lane.iter().map(|i| weighed(i) * standard(i))) / n;
        // Each standardised value carries the error of the mean.
        let shift = mean.abs() * r;
        let centred = matches!(site.op, Op::RmsNorm { .. });
        let of_mean = if centred { 0.0 } else { larger(total, root) / n };
        for i in lane {
            let along = standard(i).abs() * larger(slope, slope_root);
            let shifted = shift * (slope.abs() + standard(i).abs() * root / n);
            terms[*i] = r * (weighed(i).abs() + of_mean + along + shifted);
        }
    }
    Spread::terms(terms)
}

/// Σ g·x̂ or Σ g over everything that one weight or bias touches.
fn of_parameter(site: &Site<'_>, shape: &Shape, index: usize, levels: &Levels<'_>) -> Spread {
    let (x, g) = (site.input(0), site.cotangent());
    let mut squares = vec![0.0; site.input(index).len()];
    for Group { lane, mean, r, .. } in &shape.groups {
        for i in lane {
            let factor = if index == 1 {
                let own = if shape.of_data { x[*i] - mean } else { x[*i] };
                own.hypot(*mean) * r
            } else {
                1.0
            };
            if let Some(slot) = squares.get_mut(shape.channel[*i]) {
                *slot += (g[*i] * factor).powi(2);
            }
        }
    }
    let roots: Vec<f64> = squares.into_iter().map(f64::sqrt).collect();
    let mut spread = Spread::terms(roots);
    if index == 1 {
        // Each x̂ was computed, with an error of its own.
        let dtype = site.types.first().map_or(DType::F32, |v| v.dtype);
        let terms = site.op.forward_terms(site.types, site.outputs);
        let own = levels.of(dtype, Role::Normalisation, terms).accumulate;
        spread.extra = spread.terms.iter().map(|t| own * t).collect();
    }
    spread
}
