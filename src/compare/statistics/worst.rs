//! Extremes with their place.

use serde::Serialize;

/// How many of the worst elements are kept.
pub const K_WORST: usize = 8;

/// A maximum and where it is; the lowest index among equals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extremum {
    /// The maximum.
    pub value: f64,
    /// Row-major index of the element.
    pub index: u64,
}

/// One of the worst elements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstElement {
    /// Row-major index.
    pub index: u64,
    /// The same, one number a dimension.
    pub position: Vec<u64>,
    /// Value of the candidate.
    pub candidate: f64,
    /// Value of the reference.
    pub reference: f64,
    /// |candidate − reference|; infinite for a mismatch.
    pub absolute: f64,
    /// Whether the two disagree before any arithmetic.
    pub mismatch: bool,
}

/// Position of a row-major index in a shape. Empty for a scalar.
#[must_use]
pub fn unravel(index: u64, shape: &[usize]) -> Vec<u64> {
    let mut rest = index;
    let mut position: Vec<u64> = shape
        .iter()
        .rev()
        .map(|dim| {
            let dim = (*dim as u64).max(1);
            let at = rest % dim;
            rest /= dim;
            at
        })
        .collect();
    position.reverse();
    position
}

/// A candidate for the list of the worst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub index: u64,
    pub candidate: f64,
    pub reference: f64,
    pub absolute: f64,
    pub mismatch: bool,
}

impl Entry {
    /// Whether this stands before `other`. `absolute` is never NaN.
    fn precedes(&self, other: &Self) -> bool {
        if self.mismatch != other.mismatch {
            return self.mismatch;
        }
        if self.absolute != other.absolute {
            return self.absolute > other.absolute;
        }
        self.index < other.index
    }
}

/// The worst elements so far, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    entries: Vec<Entry>,
}

impl Worst {
    /// An |e| that a later element has to exceed to be listed; equal pairs never are.
    pub(super) fn threshold(&self) -> f64 {
        self.entries.get(K_WORST - 1).map_or(0.0, |last| last.absolute)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|e| e.precedes(&entry));
        if at < K_WORST {
            self.entries.truncate(K_WORST - 1);
            self.entries.insert(at, entry);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for entry in &other.entries {
            self.push(*entry);
        }
    }

    pub(super) fn into_elements(self, shape: &[usize]) -> Vec<WorstElement> {
        self.entries
            .into_iter()
            .map(|e| WorstElement {
                index: e.index,
                position: unravel(e.index, shape),
                candidate: e.candidate,
                reference: e.reference,
                absolute: e.absolute,
                mismatch: e.mismatch,
            })
            .collect()
    }
}

/// Keeps the larger of two maxima, the lower index among equals.
pub(super) fn keep(best: &mut Option<Extremum>, value: f64, index: u64) {
    let better = match best {
        None => true,
        Some(b) => value > b.value || (value == b.value && index < b.index),
    };
    if better {
        *best = Some(Extremum { value, index });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, absolute: f64, mismatch: bool) -> Entry {
        Entry { index, candidate: 0.0, reference: 0.0, absolute, mismatch }
    }

    #[test]
    fn an_index_is_unravelled_row_major() {
        assert_eq!(unravel(23, &[2, 3, 4]), [1, 2, 3]);
        assert_eq!(unravel(5, &[2, 3]), [1, 2]);
        assert_eq!(unravel(0, &[]), [0u64; 0]);
    }

    #[test]
    fn the_worst_do_not_depend_on_the_order_of_arrival() {
        let entries: Vec<Entry> = (0..40).map(|i| entry(i, ((i * 7) % 11) as f64, i % 13 == 5)).collect();
        let mut forward = Worst::default();
        let mut backward = Worst::default();
        for (a, b) in entries.iter().zip(entries.iter().rev()) {
            forward.push(*a);
            backward.push(*b);
        }
        assert_eq!(forward.entries, backward.entries);
        assert_eq!(forward.entries.len(), K_WORST);
        assert!(forward.entries[..3].iter().all(|e| e.mismatch));
    }

    #[test]
    fn among_equal_maxima_the_lowest_index_is_kept() {
        let mut best = None;
        keep(&mut best, 1.0, 5);
        keep(&mut best, 1.0, 3);
        keep(&mut best, 1.0, 9);
        assert_eq!(best, Some(Extremum { value: 1.0, index: 3 }));
    }
}
