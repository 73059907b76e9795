//! Dimensions and broadcasting, as in `ATen`.

/// A dimension or a pair of shapes does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DimError {
    /// Dimension beyond the rank.
    #[error("dimension {dim} is out of range for a tensor of rank {rank}")]
    OutOfRange {
        /// As given.
        dim: isize,
        /// Number of dimensions.
        rank: usize,
    },
    /// Shapes that do not broadcast.
    #[error("shapes {0:?} and {1:?} do not broadcast")]
    Broadcast(Vec<usize>, Vec<usize>),
}

/// Maps a possibly negative dimension to `0..rank`.
///
/// # Errors
/// If it is out of range.
pub fn normalize_dim(dim: isize, rank: usize) -> Result<usize, DimError> {
    let signed = isize::try_from(rank).unwrap_or(isize::MAX);
    let index = if dim < 0 { dim + signed } else { dim };
    usize::try_from(index).ok().filter(|i| *i < rank).ok_or(DimError::OutOfRange { dim, rank })
}

/// The common shape of two operands.
///
/// # Errors
/// If a pair of dimensions differs and neither is 1.
pub fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, DimError> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], i: usize| {
        let missing = rank - shape.len();
        if i < missing { 1 } else { shape[i - missing] }
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(DimError::Broadcast(a.to_vec(), b.to_vec())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_the_trailing_dimensions() {
        assert_eq!(broadcast(&[3, 1], &[2]).unwrap(), [3, 2]);
        assert_eq!(broadcast(&[], &[4, 5]).unwrap(), [4, 5]);
        assert_eq!(broadcast(&[0, 1], &[1, 3]).unwrap(), [0, 3]);
        assert!(broadcast(&[3], &[2]).is_err());
    }

    #[test]
    fn negative_dimensions_count_from_the_end() {
        assert_eq!(normalize_dim(-1, 3), Ok(2));
        assert_eq!(normalize_dim(0, 1), Ok(0));
        assert!(normalize_dim(3, 3).is_err());
        assert!(normalize_dim(-4, 3).is_err());
        assert!(normalize_dim(0, 0).is_err());
    }
}
