//! Who is nested in whom.

use std::collections::HashMap;

use super::OperatorEvent;

/// Parents by position. Events whose parent is not in the list count as outermost.
pub(super) struct Nesting {
    parents: Vec<Option<usize>>,
}

impl Nesting {
    pub(super) fn of(events: &[OperatorEvent]) -> Self {
        let positions: HashMap<u64, usize> =
            events.iter().enumerate().map(|(position, event)| (event.seq, position)).collect();
        let parent = |(position, event): (usize, &OperatorEvent)| {
            // A parent starts before its child: damaged files cannot make a cycle.
            event.parent.and_then(|seq| positions.get(&seq).copied()).filter(|parent| *parent < position)
        };
        Self { parents: events.iter().enumerate().map(parent).collect() }
    }

    pub(super) fn parent(&self, position: usize) -> Option<usize> {
        self.parents.get(position).copied().flatten()
    }

    /// From the enclosing event outwards.
    pub(super) fn ancestors(&self, position: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parent(position), |at| self.parent(*at))
    }
}
