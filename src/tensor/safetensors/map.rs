//! Mapping a file into memory: the only place that needs `unsafe` for it.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps `file` for reading.
///
/// A mapped file must not shrink while it is in use: reading beyond the new end ends the
/// process with `SIGBUS`. Checkpoints and recordings are replaced by renaming, which leaves
/// an existing mapping intact; the runs that read them do so in child processes.
///
/// # Errors
/// What the system said.
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    #[expect(
        unsafe_code,
        reason = "the mapping is read-only and bytes are only ever read as plain integers; \
                  a concurrent writer can change values but not break memory safety here, \
                  and truncation is documented above"
    )]
    unsafe {
        Mmap::map(file)
    }
}
