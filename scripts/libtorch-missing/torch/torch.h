// Found only when the folder in LIBTORCH has no headers (see .cargo/config.toml).
// An #include that cannot be is the one error after which the compiler stops,
// so that its message stands alone; #error would be followed by thousands more.
#include <libtorch is missing: run scripts/setup-libtorch (or export LIBTORCH, or LIBTORCH_USE_PYTORCH=1) and build again>
