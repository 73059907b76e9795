//! Compiles the C++ part of the libtorch engine. Without feature `torch` there
//! is nothing to build.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "torch")]
    torch::build();
}

#[cfg(feature = "torch")]
mod torch {
    use std::env;
    use std::path::{Path, PathBuf};

    const NATIVE: &str = "src/engine/torch/native";
    /// Named one by one, so that an edit of a Rust file beside them compiles no
    /// C++: a minute is spent on each round of it.
    const SOURCES: [&str; 10] = [
        "device.cpp",
        "operators.cpp",
        "profile.cpp",
        "runtime.cpp",
        "software_mps.cpp",
        "software_mps_device.cpp",
        "software_mps_dispatch.cpp",
        "software_mps_faults.cpp",
        "software_mps_kernels.cpp",
        "trace.cpp",
    ];
    const HEADERS: [&str; 8] = [
        "abi.h",
        "operators.h",
        "profile.h",
        "runtime.h",
        "software_mps.h",
        "software_mps_faults.h",
        "software_mps_internal.h",
        "trace.h",
    ];

    pub fn build() {
        let lib = folder_of_libraries();
        let include = folder_of_headers(&lib);
        let abi = variable("LIBTORCH_CXX11_ABI").unwrap_or_else(|| "1".to_owned());
        for file in SOURCES.iter().chain(&HEADERS) {
            println!("cargo::rerun-if-changed={NATIVE}/{file}");
        }

        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .pic(true)
            // Always optimised: the trace's cost is measured in debug builds too.
            .opt_level(2)
            // The library is built with NDEBUG. Without it the layout of
            // at::RecordFunction differs and every callback reads garbage.
            .define("NDEBUG", None)
            .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
            .debug(false)
            .warnings(true)
            .extra_warnings(true)
            .flag("-Wno-unused-parameter");
        for folder in [include.clone(), include.join("torch/csrc/api/include")] {
            // As system headers: their warnings are not ours.
            build.flag("-isystem").flag(folder);
        }
        for file in SOURCES {
            build.file(Path::new(NATIVE).join(file));
        }
        build.compile("parity_torch_native");

        // After our own archive, which needs them.
        println!("cargo::rustc-link-search=native={}", lib.display());
        println!("cargo::rustc-link-lib=dylib=torch_cpu");
        println!("cargo::rustc-link-lib=dylib=c10");
        let mut paths = run_paths(&lib);
        println!("cargo::rustc-env=PARITY_LIBTORCH_PATH={}", paths[0].display());
        paths.extend(telltale());
        for path in paths {
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", path.display());
        }
    }

    /// What the dynamic loader says when libtorch is gone: it names the library that it
    /// cannot find, so the last folder it looks into holds empty ones that need a library
    /// with this name.
    const MISSING: &str = "libtorch, which this program was linked with, is gone (or is of another \
                           architecture); run scripts/setup-libtorch, or build again with your own LIBTORCH";

    /// The folder of those libraries; none where there is another loader than Linux's, or
    /// where they cannot be made: the loader's plain words must do then.
    fn telltale() -> Option<PathBuf> {
        if variable("CARGO_CFG_TARGET_OS").as_deref() != Some("linux") {
            return None;
        }
        let folder = PathBuf::from(env::var_os("OUT_DIR")?).join("telltale");
        std::fs::create_dir_all(&folder).ok()?;
        let needed = folder.join("libneeded.so");
        let compiler = cc::Build::new().get_compiler();
        let link = |soname: &str, out: &Path, more: &[&std::ffi::OsStr]| {
            let mut command = compiler.to_command();
            command.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", "-o"]).arg(out);
            command.arg(format!("-Wl,--no-as-needed,-soname,{soname}")).args(more);
            command.status().is_ok_and(|status| status.success())
        };
        // A comma would end the option of the linker.
        let sentence = MISSING.replace(',', " -");
        let mut made = link(&sentence, &needed, &[]);
        for name in ["libtorch_cpu.so", "libc10.so"] {
            made = made && link(name, &folder.join(name), &[needed.as_os_str()]);
        }
        std::fs::remove_file(&needed).ok()?;
        made.then_some(folder)
    }

    fn variable(name: &str) -> Option<String> {
        println!("cargo::rerun-if-env-changed={name}");
        env::var(name).ok().filter(|value| !value.is_empty())
    }

    /// What torch-sys links against; it has settled between `LIBTORCH_USE_PYTORCH`,
    /// `LIBTORCH` and a system-wide library, and its word is taken, so that both
    /// parts see the same libtorch.
    fn folder_of_libraries() -> PathBuf {
        match variable("DEP_TCH_LIBTORCH_LIB") {
            Some(lib) => PathBuf::from(lib),
            None => fail("torch-sys did not say which libtorch it uses"),
        }
    }

    fn folder_of_headers(lib: &Path) -> PathBuf {
        let include = match (variable("LIBTORCH_USE_PYTORCH"), variable("LIBTORCH_INCLUDE")) {
            (None, Some(base)) => PathBuf::from(base).join("include"),
            _ => lib.with_file_name("include"),
        };
        if !include.join("ATen/record_function.h").exists() {
            fail(&format!("no libtorch headers in {}", include.display()));
        }
        include
    }

    /// Where the binary looks for libtorch, in this order (after `LD_LIBRARY_PATH`):
    /// the real folder of the library linked against, since links to single files
    /// would hide what lies beside it; then `PARITY_LIBTORCH_RPATH`, for machines
    /// the binary is carried to.
    fn run_paths(lib: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for name in ["libtorch_cpu.so", "libtorch_cpu.dylib"] {
            if let Ok(real) = lib.join(name).canonicalize() {
                paths.extend(real.parent().map(Path::to_path_buf));
            }
        }
        if paths.is_empty() {
            fail(&format!("no libtorch_cpu in {}", lib.display()));
        }
        if let Some(more) = variable("PARITY_LIBTORCH_RPATH") {
            paths.extend(env::split_paths(&more));
        }
        paths
    }

    fn fail(what: &str) -> ! {
        println!(
            "cargo::error={what}. Run scripts/setup-libtorch, or export LIBTORCH=<folder of your libtorch>, or LIBTORCH_USE_PYTORCH=1; then build again"
        );
        std::process::exit(1);
    }
}
