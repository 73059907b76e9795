//! CRC-32 of tensor bytes, of large ones by several threads.

use rayon::prelude::*;

/// Bytes that one thread takes at a time.
const CHUNK: usize = 8 << 20;

/// CRC-32 (IEEE 802.3, as in gzip and zip).
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    if bytes.len() <= CHUNK {
        return crc32fast::hash(bytes);
    }
    bytes
        .par_chunks(CHUNK)
        .map(|chunk| {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(chunk);
            hasher
        })
        .reduce(crc32fast::Hasher::new, |mut left, right| {
            left.combine(&right);
            left
        })
        .finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn the_sum_of_chunks_is_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..CHUNK * 2 + 12_345).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
        assert_eq!(crc32(&bytes), crc32fast::hash(&bytes));
    }
}
