//! How large the terms of convolutions are, with the sums along channels, along positions
//! and in all that the squares of the terms have (see `products`), at the cost of a
//! convolution of one channel.

use super::conv::{Geometry, Planes};
use crate::engine::reference::elementwise::{map, reshaped, slice};
use crate::engine::reference::sum::sum_over;
use crate::engine::reference::tensor::Floats;

impl Geometry {
    /// Of `correlate`: x `[n, c, ..]`, weight `[o, c/g, kh, kw]`, magnitudes `[n, o, ..]`.
    pub(super) fn correlate_terms(&self, x: &Planes, weight: &Planes) -> Vec<f64> {
        let (x, weight) = (x.squares(), weight.squares());
        let (n, o) = (x.dim[0], weight.dim[0] / self.groups);
        // All kernels of a group as one; every element of the input as often as it is read.
        let kernel = weight.kernels_summed(o);
        let places = self.correlate(&x, &kernel);
        let read = self.weight_gradient(&Planes::ones([n, self.groups, self.output[0], self.output[1]]), &x);
        let window = self.window(weight.dim[1]);
        let kernels = slice(&weight.values).chunks(window.max(1)).enumerate();
        let channels: Vec<f64> =
            kernels.map(|(out, w)| dot(w, &read[out / o * window..][..window])).collect();
        self.spread(n, &places, &channels, self.positions())
    }

    /// Of `input_gradient`: g `[n, o, ..]`, weight `[o, c/g, kh, kw]`, magnitudes `[n, c, ..]`.
    pub(super) fn input_gradient_terms(&self, g: &Planes, weight: &Planes) -> Vec<f64> {
        let (g, weight) = (g.squares(), weight.squares());
        let (n, c, o) = (g.dim[0], weight.dim[1], weight.dim[0] / self.groups);
        let kernel = weight.summed(c, self.window(1), [weight.dim[0], 1, self.kernel[0], self.kernel[1]]);
        let places = self.input_gradient(&g, &kernel);
        let used = self.weight_gradient(&g, &Planes::ones([n, self.groups, self.input[0], self.input[1]]));
        let taps = self.window(1);
        let channels: Vec<f64> = (0..self.groups * c)
            .map(|channel| {
                let (group, channel) = (channel / c, channel % c);
                let of = |out: usize| {
                    let w = &slice(&weight.values)[(out * c + channel) * taps..][..taps];
                    dot(w, &used[out * taps..][..taps])
                };
                (group * o..(group + 1) * o).map(of).sum()
            })
            .collect();
        self.spread(n, &places, &channels, self.input[0] * self.input[1])
    }

    /// Of `weight_gradient`: magnitudes `[o, c/g, kh, kw]`.
    pub(super) fn weight_gradient_terms(&self, g: &Planes, x: &Planes) -> Vec<f64> {
        let (g, x) = (g.squares(), x.squares());
        let (n, c, o) = (g.dim[0], x.dim[1] / self.groups, g.dim[1] / self.groups);
        let taps = self.weight_gradient(&g.channels_summed(o), &x);
        let window = Planes::ones([self.groups, c, self.kernel[0], self.kernel[1]]);
        let seen = self.correlate(&x, &window);
        let positions = self.positions();
        let outputs: Vec<f64> = (0..self.groups * o)
            .map(|out| {
                let group = out / o;
                let of = |i: usize| {
                    let g = &slice(&g.values)[(i * self.groups * o + out) * positions..][..positions];
                    dot(g, &seen[(i * self.groups + group) * positions..][..positions])
                };
                (0..n).map(of).sum()
            })
            .collect();
        let size = self.window(c);
        let mut terms = vec![0.0; self.groups * o * size];
        for (out, terms) in terms.chunks_mut(size.max(1)).enumerate() {
            let group = out / o;
            let taps = &taps[group * size..][..size];
            let share = inverse(taps.iter().sum()) * outputs[out];
            terms.iter_mut().zip(taps).for_each(|(t, tap)| *t = (tap * share).sqrt());
        }
        terms
    }

    /// √(place·channel/total) in `[n, channels, area]`; places are `[n, groups, area]`.
    fn spread(&self, n: usize, places: &[f64], channels: &[f64], area: usize) -> Vec<f64> {
        let width = channels.len() / self.groups.max(1);
        let totals: Vec<f64> = channels.chunks(width.max(1)).map(|c| inverse(c.iter().sum())).collect();
        let mut terms = Vec::with_capacity(n * channels.len() * area);
        for i in 0..n {
            for (channel, size) in channels.iter().enumerate() {
                let group = channel / width;
                let share = size * totals[group];
                let places = &places[(i * self.groups + group) * area..][..area];
                terms.extend(places.iter().map(|place| (place * share).sqrt()));
            }
        }
        terms
    }
}

impl Planes {
    fn ones(dim: [usize; 4]) -> Self {
        Self { values: Floats::ones(ndarray::IxDyn(&dim)), dim }
    }

    fn squares(&self) -> Self {
        Self { values: map(&self.values, |v| v * v).into_shared(), dim: self.dim }
    }

    /// Sums of `count` blocks of `inner` elements that follow each other, as planes of `dim`.
    fn summed(&self, count: usize, inner: usize, dim: [usize; 4]) -> Self {
        let outer = self.values.len() / (count * inner).max(1);
        let blocks = reshaped(&self.values, &[outer, count, inner]);
        Self { values: reshaped(&sum_over(&blocks, &[1]).into_shared(), &dim), dim }
    }

    /// Kernels `[o, c, kh, kw]`, `count` of them as one.
    fn kernels_summed(&self, count: usize) -> Self {
        let [o, c, h, w] = self.dim;
        self.summed(count, c * h * w, [o / count.max(1), c, h, w])
    }

    /// Channels of `[n, c, h, w]`, `count` of them as one.
    fn channels_summed(&self, count: usize) -> Self {
        let [n, c, h, w] = self.dim;
        self.summed(count, h * w, [n, c / count.max(1), h, w])
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn inverse(total: f64) -> f64 {
    if total > 0.0 { 1.0 / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::reference::elementwise::from_vec;

    fn planes(dim: [usize; 4], key: usize) -> Planes {
        let n = dim.iter().product();
        let value = |i: usize| ((i * 7919 + key * 104_729 + 13) % 101) as f64 / 50.0 - 1.0;
        Planes { values: from_vec(&dim, (0..n).map(value).collect()).into_shared(), dim }
    }

    /// Sums of squares over one of `[outer, middle, inner]`.
    fn sums(values: &[f64], shape: [usize; 3], axis: usize) -> Vec<f64> {
        let squares = from_vec(&shape, values.to_vec()).into_shared();
        sum_over(&squares, &[axis]).into_iter().collect()
    }

    fn close(found: &[f64], exact: &[f64]) {
        assert_eq!(found.len(), exact.len());
        for (f, e) in found.iter().zip(exact) {
            assert!((f - e).abs() <= 1e-12 * e.abs(), "{found:?} {exact:?}");
        }
    }

    #[test]
    fn sums_of_the_squares_by_channel_and_by_place_are_exact() {
        let geometry = Geometry {
            stride: [2, 1],
            padding: [1, 0],
            dilation: [1, 2],
            groups: 1,
            kernel: [3, 2],
            input: [7, 6],
            output: [4, 4],
        };
        let (x, w, g) = (planes([2, 3, 7, 6], 1), planes([5, 3, 3, 2], 2), planes([2, 5, 4, 4], 3));
        let squared = |terms: Vec<f64>| terms.into_iter().map(|t| t * t).collect::<Vec<_>>();
        let check = |terms: Vec<f64>, exact: Vec<f64>, shape: [usize; 3]| {
            let found = squared(terms);
            for axis in [1, 2] {
                // By place all channels of a sample; by channel all places of all samples.
                let (mut found, mut exact) = (sums(&found, shape, axis), sums(&exact, shape, axis));
                if axis == 2 {
                    found = sums(&found, [shape[0], shape[1], 1], 0);
                    exact = sums(&exact, [shape[0], shape[1], 1], 0);
                }
                close(&found, &exact);
            }
        };
        let (x2, w2, g2) = (x.squares(), w.squares(), g.squares());
        check(geometry.correlate_terms(&x, &w), geometry.correlate(&x2, &w2), [2, 5, 16]);
        check(geometry.input_gradient_terms(&g, &w), geometry.input_gradient(&g2, &w2), [2, 3, 42]);
        check(geometry.weight_gradient_terms(&g, &x), geometry.weight_gradient(&g2, &x2), [1, 5, 18]);
    }

    #[test]
    fn groups_keep_to_themselves() {
        let geometry = Geometry {
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 2,
            kernel: [3, 3],
            input: [5, 5],
            output: [5, 5],
        };
        let (x, w, g) = (planes([2, 4, 5, 5], 1), planes([6, 2, 3, 3], 2), planes([2, 6, 5, 5], 3));
        let (x2, w2, g2) = (x.squares(), w.squares(), g.squares());
        let pairs = [
            (geometry.correlate_terms(&x, &w), geometry.correlate(&x2, &w2), [4, 3, 25]),
            (geometry.input_gradient_terms(&g, &w), geometry.input_gradient(&g2, &w2), [4, 2, 25]),
            (geometry.weight_gradient_terms(&g, &x), geometry.weight_gradient(&g2, &x2), [2, 3, 18]),
        ];
        for (terms, exact, shape) in pairs {
            let found: Vec<f64> = terms.iter().map(|t| t * t).collect();
            close(&sums(&found, shape, 1), &sums(&exact, shape, 1));
        }
    }
}
