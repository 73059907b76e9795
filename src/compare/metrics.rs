//! Top-1 and top-5, and whether flipped predictions are explained.
//!
//! A metric is a step function of the logits: rounding alone moves a sample across a step
//! if two classes are nearly tied, and a difference of a metric says nothing without
//! knowing how near the tie was. So the samples whose prediction changed are looked at one
//! by one: a flip is *explained* if the margin between the two highest logits of the
//! reference is at most 2·K·floor, twice the error that a single logit may legally have.
//! One unexplained flip is a deviation, even if the metric came out the same.

use serde::{Deserialize, Serialize};

/// Logits `[samples, classes]` of one side, row-major, in f64.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    values: &'a [f64],
    classes: usize,
}

/// Logits, labels or floors do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// The number of logits is not a multiple of the classes, or there are no classes.
    #[error("{values} logits do not divide into rows of {classes} classes; give logits [samples, classes]")]
    Rows {
        /// Number of values.
        values: usize,
        /// Number of classes.
        classes: usize,
    },
    /// Two arguments have a different number of samples or classes.
    #[error("{what}: {found} where the logits have {expected}; give one for each")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Its length.
        found: usize,
        /// What it should be.
        expected: usize,
    },
    /// A label is not a class.
    #[error("label {label} of sample {sample} is not a class; legal are 0..{classes} and {IGNORED_LABEL}")]
    Label {
        /// Index of the sample.
        sample: usize,
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
}

/// Label of samples that take no part (as in `cross_entropy`).
pub const IGNORED_LABEL: i64 = -100;

impl<'a> Scores<'a> {
    /// Logits in rows of `classes`.
    ///
    /// # Errors
    /// If the values do not divide into rows.
    pub const fn new(values: &'a [f64], classes: usize) -> Result<Self, MetricError> {
        if classes == 0 || !values.len().is_multiple_of(classes) {
            return Err(MetricError::Rows { values: values.len(), classes });
        }
        Ok(Self { values, classes })
    }

    /// Number of samples.
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.values.len() / self.classes
    }

    fn rows(&self) -> std::slice::ChunksExact<'a, f64> {
        self.values.chunks_exact(self.classes)
    }
}

/// Top-1 and top-5 over labelled samples. Counts, so that batches can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Samples with a label.
    pub samples: u64,
    /// Of those: the label has the highest logit.
    pub top1: u64,
    /// Of those: the label is among the five highest.
    pub top5: u64,
    /// Of those: a logit is NaN. Never counted as right.
    pub not_a_number: u64,
    /// Samples without a label.
    pub ignored: u64,
}

impl Accuracy {
    /// Measures a batch. Among equal logits the lower class comes first.
    ///
    /// # Errors
    /// If labels do not fit the logits.
    pub fn of(scores: Scores<'_>, labels: &[i64]) -> Result<Self, MetricError> {
        check_length("labels", labels.len(), scores.samples())?;
        let mut accuracy = Self::default();
        for (sample, (row, label)) in scores.rows().zip(labels).enumerate() {
            if *label == IGNORED_LABEL {
                accuracy.ignored += 1;
                continue;
            }
            let bad = || MetricError::Label { sample, label: *label, classes: scores.classes };
            let class = usize::try_from(*label).map_err(|_| bad())?;
            let score = *row.get(class).ok_or_else(bad)?;
            accuracy.samples += 1;
            if row.iter().any(|x| x.is_nan()) {
                accuracy.not_a_number += 1;
                continue;
            }
            let ahead =
                row.iter().enumerate().filter(|(i, x)| **x > score || (**x == score && *i < class)).count();
            accuracy.top1 += u64::from(ahead == 0);
            accuracy.top5 += u64::from(ahead < 5);
        }
        Ok(accuracy)
    }

    /// Adds another batch.
    pub const fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.top1 += other.top1;
        self.top5 += other.top5;
        self.not_a_number += other.not_a_number;
        self.ignored += other.ignored;
    }

    /// Share of samples whose label is first; `None` without samples.
    #[must_use]
    pub fn top1_share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.top1 as f64 / self.samples as f64)
    }

    /// Share of samples whose label is among the first five; `None` without samples.
    #[must_use]
    pub fn top5_share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.top5 as f64 / self.samples as f64)
    }
}

/// Logits of both sides and what one logit may deviate by.
#[derive(Clone, Copy, Debug)]
pub struct FlipQuestion<'a> {
    /// What is judged.
    pub candidate: Scores<'a>,
    /// What it is judged against.
    pub reference: Scores<'a>,
    /// Noise floor of one logit of each sample (one value: of every sample).
    pub floor: &'a [f64],
    /// Multiple of the floor that a legal error may reach.
    pub k: f64,
}

/// A sample whose prediction changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flip {
    /// Index of the sample.
    pub sample: u64,
    /// Class with the highest logit of the candidate; `None` if a logit is NaN.
    pub candidate: Option<u64>,
    /// Class with the highest logit of the reference; `None` if a logit is NaN.
    pub reference: Option<u64>,
    /// Margin between the two highest logits of the reference.
    pub margin: f64,
    /// 2·K·floor: a margin up to this explains the flip.
    pub explained_up_to: f64,
    /// Whether it does.
    pub explained: bool,
}

/// Flipped predictions between candidate and reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flips {
    /// Samples that were looked at.
    pub samples: u64,
    /// Flips that the margin explains.
    pub explained: u64,
    /// Flips that it does not; NaN among the logits of one side is one.
    pub unexplained: u64,
    /// The flips, unexplained ones first, then by sample; at most [`Flips::KEPT`].
    pub flips: Vec<Flip>,
}

impl Flips {
    /// How many flips are listed one by one.
    pub const KEPT: usize = 64;

    /// Looks for flips.
    ///
    /// # Errors
    /// If the sides, or the floors, do not fit each other.
    pub fn find(question: &FlipQuestion<'_>) -> Result<Self, MetricError> {
        let FlipQuestion { candidate, reference, floor, k } = question;
        let samples = reference.samples();
        check_length("logits of the candidate", candidate.samples(), samples)?;
        check_length("classes of the candidate", candidate.classes, reference.classes)?;
        if floor.len() != 1 {
            check_length("noise floors", floor.len(), samples)?;
        }
        let floors = floor.iter().copied().cycle();
        let mut found = Self { samples: samples as u64, ..Self::default() };
        for (sample, ((c, r), floor)) in candidate.rows().zip(reference.rows()).zip(floors).enumerate() {
            let (c, r) = (highest(c), highest(r));
            if c.map(|c| c.0) == r.map(|r| r.0) {
                continue;
            }
            let margin = r.map_or(f64::NAN, |r| r.1);
            let explained_up_to = 2.0 * k * floor;
            // False for NaN on any side: a number that is none explains nothing.
            let explained = c.is_some() && margin <= explained_up_to;
            found.push(Flip {
                sample: sample as u64,
                candidate: c.map(|c| c.0 as u64),
                reference: r.map(|r| r.0 as u64),
                margin,
                explained_up_to,
                explained,
            });
        }
        found.order();
        Ok(found)
    }

    /// Flips of either kind.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.explained + self.unexplained
    }

    /// Adds the flips of a following batch; its samples are counted on from these.
    pub fn append(&mut self, next: &Self) {
        let offset = self.samples;
        self.samples += next.samples;
        self.explained += next.explained;
        self.unexplained += next.unexplained;
        self.flips.extend(next.flips.iter().map(|flip| Flip { sample: flip.sample + offset, ..*flip }));
        self.order();
    }

    fn push(&mut self, flip: Flip) {
        *if flip.explained { &mut self.explained } else { &mut self.unexplained } += 1;
        self.flips.push(flip);
    }

    fn order(&mut self) {
        self.flips.sort_by_key(|flip| (flip.explained, flip.sample));
        self.flips.truncate(Self::KEPT);
    }
}

/// Class with the highest score (the lower one among equals) and its margin to the next;
/// `None` if a score is NaN. The margin of a single class, or of +∞ over a number, is
/// infinite; +∞ against +∞ is a tie.
fn highest(row: &[f64]) -> Option<(usize, f64)> {
    let mut first: Option<(usize, f64)> = None;
    let mut second = f64::NEG_INFINITY;
    for (class, score) in row.iter().enumerate() {
        if score.is_nan() {
            return None;
        }
        match first {
            Some((_, best)) if *score <= best => {
                if *score > second {
                    second = *score;
                }
            }
            _ => {
                if let Some((_, best)) = first {
                    second = best;
                }
                first = Some((class, *score));
            }
        }
    }
    first.map(|(class, best)| (class, if best == second { 0.0 } else { best - second }))
}

const fn check_length(what: &'static str, found: usize, expected: usize) -> Result<(), MetricError> {
    if found == expected { Ok(()) } else { Err(MetricError::Length { what, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(values: &[f64], classes: usize) -> Scores<'_> {
        Scores::new(values, classes).unwrap()
    }

    fn flips(c: &[f64], r: &[f64], classes: usize, floor: f64) -> Flips {
        let question = FlipQuestion {
            candidate: scores(c, classes),
            reference: scores(r, classes),
            floor: &[floor],
            k: 3.0,
        };
        Flips::find(&question).unwrap()
    }

    #[test]
    fn top_1_and_top_5_count_labels() {
        let row: Vec<f64> = (0..7).map(f64::from).collect();
        let four: Vec<f64> = row.repeat(4);
        let a = Accuracy::of(scores(&four, 7), &[6, 2, 1, IGNORED_LABEL]).unwrap();
        assert_eq!(a, Accuracy { samples: 3, top1: 1, top5: 2, not_a_number: 0, ignored: 1 });
        assert_eq!(Accuracy::default().top1_share(), None);
    }

    #[test]
    fn ties_go_to_the_lower_class() {
        let a = Accuracy::of(scores(&[1.0, 1.0], 2), &[1]).unwrap();
        assert_eq!(a.top1, 0);
        let a = Accuracy::of(scores(&[1.0, 1.0], 2), &[0]).unwrap();
        assert_eq!(a.top1, 1);
    }

    #[test]
    fn a_sample_with_nan_is_never_right() {
        let a = Accuracy::of(scores(&[3.0, f64::NAN], 2), &[0]).unwrap();
        assert_eq!((a.top1, a.top5, a.not_a_number), (0, 0, 1));
    }

    #[test]
    fn bad_labels_and_lengths_are_refused() {
        assert!(Scores::new(&[1.0; 5], 2).is_err());
        assert!(Scores::new(&[], 0).is_err());
        assert!(Accuracy::of(scores(&[1.0, 2.0], 2), &[2]).is_err());
        assert!(Accuracy::of(scores(&[1.0, 2.0], 2), &[-1]).is_err());
        assert!(Accuracy::of(scores(&[1.0, 2.0], 2), &[0, 0]).is_err());
        let (a, b) = ([1.0; 4], [1.0; 6]);
        let question =
            FlipQuestion { candidate: scores(&a, 2), reference: scores(&b, 2), floor: &[1.0], k: 3.0 };
        assert!(Flips::find(&question).is_err());
    }

    #[test]
    fn a_flip_at_a_near_tie_is_explained_and_one_at_a_clear_margin_is_not() {
        let f = flips(&[1.0, 1.001, 5.0, 6.0], &[1.001, 1.0, 7.0, 6.0], 2, 0.001);
        assert_eq!((f.samples, f.explained, f.unexplained), (2, 1, 1));
        assert_eq!((f.flips[0].sample, f.flips[0].margin, f.flips[0].explained), (1, 1.0, false));
        assert!(f.flips[1].explained);
    }

    #[test]
    fn equal_metrics_do_not_hide_flips() {
        // One sample becomes right, one becomes wrong: the same top-1, two flips.
        let (c, r) = ([2.0, 1.0, 2.0, 1.0], [1.0, 2.0, 2.0, 1.0]);
        let (c2, r2) = ([c[0], c[1], 1.0, 2.0], r);
        let labels = [0, 0];
        let top1 = |v: &[f64]| Accuracy::of(scores(v, 2), &labels).unwrap().top1;
        assert_eq!(top1(&c2), top1(&r2));
        assert_eq!(flips(&c2, &r2, 2, 1e-6).unexplained, 2);
    }

    #[test]
    fn nan_is_an_unexplained_flip_whatever_the_floor() {
        let f = flips(&[f64::NAN, 1.0], &[1.0, 1.0], 2, 1e9);
        assert_eq!((f.explained, f.unexplained), (0, 1));
        assert_eq!(flips(&[1.0, 1.0], &[f64::NAN, 1.0], 2, f64::NAN).unexplained, 1);
        assert_eq!(flips(&[1.0, 2.0], &[2.0, 1.0], 2, f64::NAN).unexplained, 1);
    }

    #[test]
    fn batches_add_up() {
        let mut all = flips(&[1.0, 2.0], &[2.0, 1.0], 2, 0.0);
        all.append(&flips(&[2.0, 1.0, 1.0, 2.0], &[2.0, 1.0, 2.0, 1.0], 2, 0.0));
        assert_eq!((all.samples, all.unexplained), (3, 2));
        assert_eq!(all.flips.iter().map(|f| f.sample).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn margins_of_special_rows() {
        assert_eq!(highest(&[3.0]), Some((0, f64::INFINITY)));
        assert_eq!(highest(&[f64::INFINITY, f64::INFINITY]), Some((0, 0.0)));
        assert_eq!(highest(&[1.0, 4.0, 3.5, 4.0]), Some((1, 0.0)));
        assert_eq!(highest(&[]), None);
        assert_eq!(highest(&[f64::NEG_INFINITY; 2]), Some((0, 0.0)));
    }
}
