//! Elements of a row-major tensor that are reduced together.

/// Index lists of the elements that differ only along `dims`, in order of what is kept.
pub(super) fn lanes(shape: &[usize], dims: &[usize]) -> Vec<Vec<usize>> {
    let elements: usize = shape.iter().product();
    let count: usize =
        shape.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, size)| *size).product();
    let mut lanes = vec![Vec::with_capacity(elements / count.max(1)); count];
    for element in 0..elements {
        let (mut rest, mut key, mut step) = (element, 0, 1);
        for (d, size) in shape.iter().enumerate().rev() {
            if !dims.contains(&d) {
                key += rest % size * step;
                step *= size;
            }
            rest /= size;
        }
        if let Some(lane) = lanes.get_mut(key) {
            lane.push(element);
        }
    }
    lanes
}

/// Dimensions in `0..rank`; all of them when none is named.
pub(super) fn dims(dims: &[isize], rank: usize) -> Vec<usize> {
    if dims.is_empty() {
        return (0..rank).collect();
    }
    dims.iter().filter_map(|dim| crate::program::normalize_dim(*dim, rank).ok()).collect()
}

/// Root of the sum of squares.
pub(super) fn root_sum_square(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// The larger magnitude; NaN if either is.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    crate::numerics::max_nan(a.abs(), b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_run_along_the_named_dimensions() {
        assert_eq!(lanes(&[2, 3], &[1]), [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(lanes(&[2, 3], &[0]), [vec![0, 3], vec![1, 4], vec![2, 5]]);
        assert_eq!(lanes(&[2, 2, 2], &[0, 2]), [vec![0, 1, 4, 5], vec![2, 3, 6, 7]]);
        assert_eq!(lanes(&[], &[]), [vec![0]]);
    }
}
