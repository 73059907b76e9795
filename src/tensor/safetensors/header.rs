//! Parsing and checking the header.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};

use crate::numerics::DType;

/// Longest header that is read, as in the reference implementation of the format.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Key.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Bytes in the file, from its beginning.
    pub range: Range<usize>,
}

/// A checked header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Tensors in the order of their data.
    pub entries: Vec<TensorEntry>,
    /// Free text of the file's author.
    pub metadata: BTreeMap<String, String>,
}

/// What is wrong with a header. Messages are fragments that follow "`file`: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Not even the length of the header is there.
    #[error("is {0} bytes long, too short for a safetensors file; fetch it again")]
    TooShort(u64),
    /// Another kind of file.
    #[error("is not a safetensors file: {0}")]
    NotSafetensors(&'static str),
    /// The header would be longer than the file.
    #[error(
        "the header should be {header} bytes long, only {available} follow; \
         the file is cut off, fetch it again"
    )]
    BeyondFile {
        /// Length that the file states.
        header: u64,
        /// Bytes that follow.
        available: u64,
    },
    /// Longer than any real header.
    #[error(
        "the header states {0} bytes, more than the {MAX_HEADER_BYTES} that the format allows; \
         the file is damaged, fetch it again"
    )]
    TooLong(u64),
    /// The header is not the expected JSON.
    #[error("the header does not parse: {0}; the file is damaged, fetch it or write it again")]
    Json(String),
    /// A key stands in the header twice.
    #[error("the key `{0}` occurs twice in the header; write the file again with unique keys")]
    DuplicateKey(String),
    /// An element type that this project does not read.
    #[error(
        "the tensor `{key}` has the unsupported dtype `{dtype}`; \
         convert it to F64, F32, F16, BF16, I64 or U8"
    )]
    UnsupportedDType {
        /// Tensor.
        key: String,
        /// Name of the dtype in the file.
        dtype: String,
    },
    /// More elements than an address space holds.
    #[error("the tensor `{key}` has the impossible shape {shape:?}; the file is damaged, write it again")]
    ImpossibleShape {
        /// Tensor.
        key: String,
        /// As stated.
        shape: Vec<u64>,
    },
    /// The byte range begins after it ends.
    #[error("the tensor `{key}` has the reversed byte range {begin}..{end}; write the file again")]
    ReversedRange {
        /// Tensor.
        key: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Byte range and shape disagree.
    #[error(
        "the tensor `{key}` needs {expected} bytes for its shape and dtype but has {found}; \
         write the file again"
    )]
    WrongLength {
        /// Tensor.
        key: String,
        /// Bytes that shape and dtype need.
        expected: u64,
        /// Bytes of the range.
        found: u64,
    },
    /// The data of a tensor ends beyond the file.
    #[error(
        "the data of `{key}` ends at byte {end}, but the file holds only {available} bytes of data; \
         the file is cut off or damaged, fetch it again"
    )]
    OutOfRange {
        /// Tensor.
        key: String,
        /// Where its data ends, from the beginning of the data.
        end: u64,
        /// Bytes of data in the file.
        available: u64,
    },
    /// Two tensors share bytes.
    #[error("the data of `{first}` and `{second}` overlap; write the file again")]
    Overlap {
        /// Tensor that comes first.
        first: String,
        /// Tensor that begins inside it.
        second: String,
    },
    /// Bytes that belong to no tensor.
    #[error("bytes {begin}..{end} of the data belong to no tensor; write the file again")]
    Gap {
        /// First byte, from the beginning of the data.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
}

impl Header {
    /// Reads and checks the header of a file whose whole content is `bytes`.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let total = bytes.len() as u64;
        let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(HeaderFault::TooShort(total));
        };
        let header = u64::from_le_bytes(*length);
        if rest.first() != Some(&b'{') {
            return Err(match (recognise(bytes), rest.is_empty()) {
                (None, true) => HeaderFault::BeyondFile { header, available: 0 },
                (known, _) => HeaderFault::NotSafetensors(
                    known.unwrap_or("byte 8 is not `{`; point to a `.safetensors` file"),
                ),
            });
        }
        let available = rest.len() as u64;
        if header > available {
            return Err(HeaderFault::BeyondFile { header, available });
        }
        if header > MAX_HEADER_BYTES {
            return Err(HeaderFault::TooLong(header));
        }
        let split = usize::try_from(header).unwrap_or(usize::MAX);
        let Some((json, data)) = rest.split_at_checked(split) else {
            return Err(HeaderFault::BeyondFile { header, available });
        };
        let raw: RawHeader = match serde_json::from_slice(json) {
            Ok(raw) => raw,
            Err(error) => return Err(HeaderFault::Json(error.to_string())),
        };
        raw.check(8 + split, data.len() as u64)
    }
}

/// What a file that is no safetensors file seems to be, and what to do about it.
fn recognise(bytes: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    if starts(b"PK\x03\x04") || starts(b"\x80\x02") || starts(b"\x80\x04") {
        Some("it is a PyTorch pickle; convert it with `safetensors.torch.save_file`")
    } else if starts(b"version https://git-lfs") {
        Some("it is a Git LFS pointer; run `git lfs pull`")
    } else if starts(b"\x89HDF") {
        Some("it is an HDF5 file; convert it to safetensors")
    } else if starts(b"GGUF") {
        Some("it is a GGUF file; convert it to safetensors")
    } else if starts(b"<!") || starts(b"<html") {
        Some("it is an HTML page, probably a failed download; fetch it again")
    } else {
        None
    }
}

/// The header as it stands: pairs in order, repeated keys included.
#[derive(Default)]
struct RawHeader {
    entries: Vec<(String, RawEntry)>,
    metadata: Vec<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one entry a tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut raw = RawHeader::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        raw.metadata.push(map.next_value()?);
                    } else {
                        let entry =
                            map.next_value().map_err(|e| A::Error::custom(format!("tensor `{key}`: {e}")))?;
                        raw.entries.push((key, entry));
                    }
                }
                Ok(raw)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl RawHeader {
    fn check(self, data_start: usize, data_bytes: u64) -> Result<Header, HeaderFault> {
        if self.metadata.len() > 1 {
            return Err(HeaderFault::DuplicateKey("__metadata__".to_owned()));
        }
        let mut seen = HashSet::with_capacity(self.entries.len());
        if let Some((key, _)) = self.entries.iter().find(|(key, _)| !seen.insert(key.as_str())) {
            return Err(HeaderFault::DuplicateKey(key.clone()));
        }
        let mut entries = self
            .entries
            .into_iter()
            .map(|(key, raw)| raw.check(key, data_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
        let mut covered = 0;
        let mut last: Option<&TensorEntry> = None;
        for entry in &entries {
            if let Some(first) = last.filter(|_| entry.range.start < covered) {
                return Err(HeaderFault::Overlap { first: first.name.clone(), second: entry.name.clone() });
            }
            if entry.range.start > covered {
                return Err(HeaderFault::Gap { begin: covered as u64, end: entry.range.start as u64 });
            }
            covered = entry.range.end;
            last = Some(entry);
        }
        if (covered as u64) < data_bytes {
            return Err(HeaderFault::Gap { begin: covered as u64, end: data_bytes });
        }
        for entry in &mut entries {
            entry.range = data_start + entry.range.start..data_start + entry.range.end;
        }
        Ok(Header { entries, metadata: self.metadata.into_iter().next().unwrap_or_default() })
    }
}

impl RawEntry {
    /// The entry with its range from the beginning of the data.
    fn check(self, key: String, data_bytes: u64) -> Result<TensorEntry, HeaderFault> {
        let Some(dtype) = dtype_of(&self.dtype) else {
            return Err(HeaderFault::UnsupportedDType { key, dtype: self.dtype });
        };
        let [begin, end] = self.data_offsets;
        if begin > end {
            return Err(HeaderFault::ReversedRange { key, begin, end });
        }
        if end > data_bytes {
            return Err(HeaderFault::OutOfRange { key, end, available: data_bytes });
        }
        let shape: Option<Vec<usize>> = self.shape.iter().map(|d| usize::try_from(*d).ok()).collect();
        // Dimensions are multiplied one by one: a zero does not excuse an overflow before it.
        let expected =
            self.shape.iter().try_fold(dtype.size() as u64, |product, dim| product.checked_mul(*dim));
        let (Some(shape), Some(expected)) = (shape, expected) else {
            return Err(HeaderFault::ImpossibleShape { key, shape: self.shape });
        };
        if expected != end - begin {
            return Err(HeaderFault::WrongLength { key, expected, found: end - begin });
        }
        // Both lie within the mapped file, hence in the address space.
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(TensorEntry { name: key, dtype, shape, range: at(begin)..at(end) })
    }
}

/// Names of the format are ours in upper case.
fn dtype_of(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| name == format_name(*dtype))
}

/// Name of a dtype in the format.
pub(super) const fn format_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::U8 => "U8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header and so many bytes of data.
    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn fault(json: &str, data: usize) -> HeaderFault {
        Header::parse(&file(json, data)).unwrap_err()
    }

    fn tensor(shape: &str, begin: u64, end: u64) -> String {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    }

    #[test]
    fn a_good_header_is_read_in_the_order_of_the_data() {
        let json = format!(
            r#"{{"__metadata__":{{"format":"pt"}},"b":{},"a":{}}}"#,
            tensor("[2]", 4, 12),
            tensor("[]", 0, 4)
        );
        let header = Header::parse(&file(&json, 12)).unwrap();
        let names: Vec<_> = header.entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let start = 8 + json.len();
        assert_eq!(header.entries[1].range, start + 4..start + 12);
        assert_eq!(header.metadata["format"], "pt");
    }

    #[test]
    fn a_short_file_is_refused() {
        assert_eq!(Header::parse(b"abc").unwrap_err(), HeaderFault::TooShort(3));
        assert_eq!(Header::parse(b"").unwrap_err(), HeaderFault::TooShort(0));
    }

    #[test]
    fn other_kinds_of_file_are_recognised() {
        for (bytes, word) in [
            (&b"PK\x03\x04\0\0\0\0archive"[..], "pickle"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"<!DOCTYPE html><html>", "HTML"),
            (b"just some text, nothing more", "byte 8"),
        ] {
            let message = Header::parse(bytes).unwrap_err().to_string();
            assert!(message.contains("not a safetensors file") && message.contains(word), "{message}");
        }
    }

    #[test]
    fn a_header_beyond_the_file_is_refused_whatever_length_it_states() {
        let mut bytes = file("{}", 0);
        for length in [3, 1 << 40, u64::MAX] {
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            let expected = HeaderFault::BeyondFile { header: length, available: 2 };
            assert_eq!(Header::parse(&bytes).unwrap_err(), expected);
        }
        assert_eq!(
            Header::parse(&7u64.to_le_bytes()).unwrap_err(),
            HeaderFault::BeyondFile { header: 7, available: 0 }
        );
    }

    #[test]
    fn a_header_that_is_cut_short_does_not_parse() {
        assert!(matches!(fault(r#"{"a":{"dtype":"F32","sha"#, 0), HeaderFault::Json(_)));
        assert!(matches!(fault(r#"{"a":[1,2]}"#, 0), HeaderFault::Json(m) if m.contains("tensor `a`")));
        assert!(matches!(
            fault(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4),
            HeaderFault::Json(_)
        ));
    }

    #[test]
    fn a_repeated_key_is_refused() {
        let json = format!(r#"{{"a":{0},"a":{0}}}"#, tensor("[1]", 0, 4));
        assert_eq!(fault(&json, 4), HeaderFault::DuplicateKey("a".to_owned()));
        // The same key in an escaped spelling.
        let json = format!(r#"{{"a":{},"\u0061":{}}}"#, tensor("[1]", 0, 4), tensor("[1]", 4, 8));
        assert_eq!(fault(&json, 8), HeaderFault::DuplicateKey("a".to_owned()));
    }

    #[test]
    fn unsupported_dtypes_are_refused_by_name() {
        for name in ["F8_E4M3", "I32", "BOOL", "U64", "f32", "Q4"] {
            let json = format!(r#"{{"w":{{"dtype":"{name}","shape":[1],"data_offsets":[0,4]}}}}"#);
            let expected = HeaderFault::UnsupportedDType { key: "w".to_owned(), dtype: name.to_owned() };
            assert_eq!(fault(&json, 4), expected);
        }
    }

    #[test]
    fn offsets_beyond_the_file_are_refused() {
        let json = format!(r#"{{"a":{}}}"#, tensor("[3]", 0, 12));
        let expected = HeaderFault::OutOfRange { key: "a".to_owned(), end: 12, available: 8 };
        assert_eq!(fault(&json, 8), expected);
    }

    #[test]
    fn reversed_and_ill_fitting_ranges_are_refused() {
        let json = format!(r#"{{"a":{}}}"#, tensor("[1]", 4, 0));
        assert!(matches!(fault(&json, 4), HeaderFault::ReversedRange { .. }));
        let json = format!(r#"{{"a":{}}}"#, tensor("[3]", 0, 8));
        let expected = HeaderFault::WrongLength { key: "a".to_owned(), expected: 12, found: 8 };
        assert_eq!(fault(&json, 8), expected);
    }

    #[test]
    fn a_shape_that_overflows_is_refused() {
        let json = format!(r#"{{"a":{}}}"#, tensor("[4294967296,4294967296,4]", 0, 4));
        assert!(matches!(fault(&json, 4), HeaderFault::ImpossibleShape { .. }));
    }

    #[test]
    fn overlaps_and_gaps_are_refused() {
        let json = format!(r#"{{"a":{},"b":{}}}"#, tensor("[2]", 0, 8), tensor("[2]", 4, 12));
        let expected = HeaderFault::Overlap { first: "a".to_owned(), second: "b".to_owned() };
        assert_eq!(fault(&json, 12), expected);
        let json = format!(r#"{{"a":{},"b":{}}}"#, tensor("[1]", 0, 4), tensor("[1]", 8, 12));
        assert_eq!(fault(&json, 12), HeaderFault::Gap { begin: 4, end: 8 });
        let json = format!(r#"{{"a":{}}}"#, tensor("[1]", 0, 4));
        assert_eq!(fault(&json, 6), HeaderFault::Gap { begin: 4, end: 6 });
    }
}
