//! How a tensor lies in memory when an operator reads it.
//!
//! A tensor is uploaded in another shape or order and brought into its own by operators of
//! the program (`permute`, `slice`, `expand`, `flip`), so that each engine makes the view its
//! own way. Incoming gradients get theirs from the operator that consumes the result: its
//! backward hands over a permuted, sliced, broadcast or reversed gradient.

use std::fmt;

use crate::program::{Builder, Op, ValueId};

/// Arrangement of a tensor in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Row-major from the start of its storage.
    Contiguous,
    /// Dimensions in reverse order.
    Transposed,
    /// A part of a larger tensor, not from its start.
    Sliced,
    /// One dimension repeated with stride 0.
    Expanded,
    /// Reversed along every dimension.
    Reversed,
}

impl Layout {
    /// Those that are not contiguous.
    pub const STRIDED: [Self; 4] = [Self::Transposed, Self::Sliced, Self::Expanded, Self::Reversed];

    /// Name in the names of trials.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::Transposed => "transposed",
            Self::Sliced => "sliced",
            Self::Expanded => "expanded",
            Self::Reversed => "reversed",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A tensor of one shape in one layout: its storage and where each element lies in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    layout: Layout,
    shape: Vec<usize>,
    /// Dimension that is repeated, of an expanded tensor.
    repeated: usize,
    /// Shape of the storage.
    pub storage: Vec<usize>,
    /// Position in the storage of each element, in row-major order of the tensor.
    pub positions: Vec<usize>,
}

impl Placed {
    /// `None` where the layout would not differ from a contiguous one. `fixed` are dimensions
    /// that an expanded tensor must not repeat (a sorted one would have ties).
    #[must_use]
    pub fn new(layout: Layout, shape: &[usize], fixed: &[usize]) -> Option<Self> {
        let wide = shape.iter().filter(|size| **size > 1).count();
        let (last, elements) = (shape.len().checked_sub(1), shape.iter().product::<usize>());
        let mut repeated = 0;
        let storage = match layout {
            Layout::Contiguous => shape.to_vec(),
            _ if elements == 0 => return None,
            Layout::Transposed if wide < 2 => return None,
            Layout::Transposed => shape.iter().rev().copied().collect(),
            Layout::Sliced => {
                let last = last?;
                let mut storage = shape.to_vec();
                storage[last] += 3;
                storage[0] += 2;
                storage
            }
            Layout::Expanded => {
                repeated = (0..shape.len()).rev().find(|d| shape[*d] > 1 && !fixed.contains(d))?;
                let mut storage = shape.to_vec();
                storage[repeated] = 1;
                storage
            }
            Layout::Reversed if wide == 0 => return None,
            Layout::Reversed => shape.to_vec(),
        };
        let placed = Self { layout, shape: shape.to_vec(), repeated, storage, positions: Vec::new() };
        let positions = (0..elements).map(|element| placed.position(element)).collect();
        Some(Self { positions, ..placed })
    }

    /// Where in the storage an element lies.
    fn position(&self, element: usize) -> usize {
        let mut index = vec![0; self.shape.len()];
        let mut rest = element;
        for (slot, size) in index.iter_mut().zip(&self.shape).rev() {
            *slot = rest % size;
            rest /= size;
        }
        match self.layout {
            Layout::Contiguous => {}
            Layout::Transposed => index.reverse(),
            Layout::Sliced => {
                let last = index.len() - 1;
                index[last] += 1;
                index[0] += 1;
            }
            Layout::Expanded => index[self.repeated] = 0,
            Layout::Reversed => {
                for (slot, size) in index.iter_mut().zip(&self.shape) {
                    *slot = size - 1 - *slot;
                }
            }
        }
        index.iter().zip(&self.storage).fold(0, |position, (i, size)| position * size + i)
    }

    /// Adds the nodes that turn the storage into the tensor.
    pub fn view(&self, b: &mut Builder, storage: ValueId) -> ValueId {
        let rank = self.shape.len();
        match self.layout {
            Layout::Contiguous => storage,
            Layout::Transposed => b.apply(Op::Permute { dims: reversed(rank) }, &[storage]),
            Layout::Sliced => {
                let slice = |dim: usize, start: isize| Op::Slice {
                    dim: signed(dim),
                    start,
                    end: start + signed(self.shape[dim]),
                    step: 1,
                };
                if rank == 1 {
                    return b.apply(slice(0, 2), &[storage]);
                }
                let rows = b.apply(slice(0, 1), &[storage]);
                b.apply(slice(rank - 1, 1), &[rows])
            }
            Layout::Expanded => {
                let shape = self.shape.iter().map(|size| signed(*size)).collect();
                b.apply(Op::Expand { shape }, &[storage])
            }
            Layout::Reversed => b.apply(Op::Flip { dims: (0..rank).map(signed).collect() }, &[storage]),
        }
    }

    /// Adds the nodes that turn a result into what is multiplied with an incoming gradient in
    /// this layout's storage: their backward gives the view.
    pub fn consume(&self, b: &mut Builder, result: ValueId) -> ValueId {
        let rank = self.shape.len();
        match self.layout {
            Layout::Contiguous => result,
            Layout::Transposed => b.apply(Op::Permute { dims: reversed(rank) }, &[result]),
            Layout::Sliced if rank == 1 => b.apply(Op::Pad { pad: vec![2, 3], value: 0.0 }, &[result]),
            Layout::Sliced => {
                let mut pad = vec![0; 2 * rank];
                pad[0] = 1;
                pad[1] = 2;
                pad[2 * rank - 2] = 1;
                pad[2 * rank - 1] = 1;
                b.apply(Op::Pad { pad, value: 0.0 }, &[result])
            }
            Layout::Expanded => {
                b.apply(Op::Sum { dims: vec![signed(self.repeated)], keepdim: true }, &[result])
            }
            Layout::Reversed => b.apply(Op::Flip { dims: (0..rank).map(signed).collect() }, &[result]),
        }
    }

    /// Elements of the tensor from those of the storage.
    #[must_use]
    pub fn gather(&self, storage: &[f64]) -> Vec<f64> {
        self.positions.iter().map(|at| storage.get(*at).copied().unwrap_or(f64::NAN)).collect()
    }

    /// Sums of elements of the tensor that share a place in the storage.
    #[must_use]
    pub fn scatter(&self, values: &[f64]) -> Vec<f64> {
        let mut storage = vec![0.0; self.storage.iter().product()];
        for (at, value) in self.positions.iter().zip(values) {
            if let Some(slot) = storage.get_mut(*at) {
                *slot += value;
            }
        }
        storage
    }

    /// How many elements share a place.
    #[must_use]
    pub fn repeats(&self) -> usize {
        match self.layout {
            Layout::Expanded => self.shape[self.repeated],
            _ => 1,
        }
    }
}

fn reversed(rank: usize) -> Vec<isize> {
    (0..rank).rev().map(signed).collect()
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_say_where_each_element_lies() {
        let at = |layout| Placed::new(layout, &[2, 3], &[]).unwrap().positions;
        assert_eq!(at(Layout::Contiguous), [0, 1, 2, 3, 4, 5]);
        assert_eq!(at(Layout::Transposed), [0, 2, 4, 1, 3, 5]);
        assert_eq!(at(Layout::Sliced), [7, 8, 9, 13, 14, 15]);
        assert_eq!(at(Layout::Expanded), [0, 0, 0, 1, 1, 1]);
        assert_eq!(at(Layout::Reversed), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn layouts_that_change_nothing_are_not_made() {
        assert!(Placed::new(Layout::Transposed, &[1, 5], &[]).is_none());
        assert!(Placed::new(Layout::Expanded, &[4], &[0]).is_none());
        assert!(Placed::new(Layout::Sliced, &[], &[]).is_none());
        assert!(Placed::new(Layout::Reversed, &[1, 1], &[]).is_none());
    }

    #[test]
    fn what_shares_a_place_is_summed() {
        let placed = Placed::new(Layout::Expanded, &[2, 3], &[]).unwrap();
        assert_eq!(placed.scatter(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [6.0, 15.0]);
        assert_eq!((placed.repeats(), placed.gather(&[7.0, 8.0])[4]), (3, 8.0));
    }
}
