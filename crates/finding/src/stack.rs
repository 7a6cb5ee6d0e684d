//! Reading a call stack: which frame stands for it, which frames nobody wants to see, and how one is written.

use crate::Frame;

/// Frames of the C library below `main` or below a thread's function; they are the same in every stack.
const START_FRAMES: [&str; 8] = [
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "_start",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
];

impl Frame {
    /// Whether the debug info knows the source position.
    pub fn has_position(&self) -> bool {
        self.file.is_some() && self.line.is_some_and(|line| line > 0)
    }

    /// Whether the code is from a header of the system: the compiler's intrinsics (`_mm_clwb`), the C++ library, the
    /// checked string functions. It was inlined; the place to show is its caller.
    pub fn in_system_header(&self) -> bool {
        self.file.as_deref().is_some_and(|file| {
            let toolchain = ["/lib/gcc/", "/lib/clang/", "/lib/llvm-"]
                .iter()
                .any(|place| file.contains(place));
            file.starts_with("/usr/include/")
                || file.contains("/include/c++/")
                || (toolchain && file.contains("/include/"))
        })
    }

    /// Whether it is the frame to blame if it is the innermost of the user's code and no helper.
    pub fn may_be_blamed(&self) -> bool {
        self.has_position() && !self.in_system_header() && !self.in_serving_library()
    }

    /// Whether the code is of a library that every program has (memcpy, pthread_mutex_lock). It may have debug info, but
    /// the place to show is its caller.
    pub fn in_language_runtime(&self) -> bool {
        self.module_name().is_some_and(is_language_runtime)
    }

    /// Whether the code is of a library that the user did not write and that stores, flushes and fences for its callers.
    fn in_serving_library(&self) -> bool {
        self.module_name()
            .is_some_and(|name| is_language_runtime(name) || is_pmdk(name))
    }

    fn in_libc(&self) -> bool {
        self.module_name().is_some_and(|name| name.starts_with("libc.so"))
    }

    /// The last component of the module's path.
    pub fn module_name(&self) -> Option<&str> {
        self.module
            .as_deref()
            .map(|path| path.rsplit('/').next().unwrap_or(path))
    }
}

/// Whether a module, by the last component of its path, is a library that every program has: memcpy and its like.
pub fn is_language_runtime(module: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "libc.so",
        "libc-",
        "ld-linux",
        "ld-musl",
        "libpthread",
        "libm.so",
        "libgcc_s",
        "libstdc++",
        "libcrashproof_runtime",
    ];
    PREFIXES.iter().any(|prefix| module.starts_with(prefix)) || module.contains("vdso")
}

/// Whether a module, by the last component of its path, is a library of PMDK.
pub fn is_pmdk(module: &str) -> bool {
    module.starts_with("libpmem")
}

/// The frame to blame for an event: the innermost one in the user's code that is not a helper, nor of a library that only does
/// what it is called for. One with a source position is preferred; `None` if nothing is known of any.
pub fn blamed(stack: &[Frame]) -> Option<&Frame> {
    let outside = stack.iter().position(|frame| !frame.in_serving_library());
    let users = &stack[outside.unwrap_or(0)..];
    let positioned = || users.iter().filter(|frame| frame.has_position());
    // Where a library calls the user's code, nobody of the user's called that: its outermost frame decided.
    let asked = users.iter().position(Frame::in_serving_library).unwrap_or(users.len());
    let decided = users[..asked].iter().enumerate().find(|(depth, frame)| {
        let is_outermost = depth + 1 == asked;
        frame.may_be_blamed() && (is_outermost || !frame.helper)
    });
    decided
        .map(|(_, frame)| frame)
        .or_else(|| positioned().find(|frame| frame.may_be_blamed()))
        .or_else(|| positioned().find(|frame| !frame.in_serving_library()))
        .or_else(|| users.first().filter(|_| outside.is_some()))
        .or_else(|| positioned().find(|frame| !frame.in_language_runtime()))
        .or_else(|| users.first())
        .filter(|frame| frame.has_position() || frame.address != 0 || frame.function.is_some())
}

/// The helpers between the event and the frame to blame.
pub fn skipped_helpers(stack: &[Frame]) -> impl Iterator<Item = &Frame> {
    let at = blamed(stack).and_then(|at| stack.iter().position(|frame| std::ptr::eq(frame, at)));
    stack[..at.unwrap_or(0)].iter().filter(|frame| frame.helper)
}

/// The frame to blame, if the debug info knows where it is.
pub fn blamed_position(stack: &[Frame]) -> Option<&Frame> {
    blamed(stack).filter(|frame| frame.has_position())
}

/// The stack without the C library's frames at its outer end.
pub fn trimmed(stack: &[Frame]) -> &[Frame] {
    let is_start = |frame: &Frame| {
        // Without debug info for libc there is no name either: an unnamed libc frame at the end is one of these.
        match &frame.function {
            Some(function) => START_FRAMES.contains(&function.split('@').next().unwrap_or(function)),
            None => frame.in_libc(),
        }
    };
    let kept = stack
        .iter()
        .rposition(|frame| !is_start(frame))
        .map_or(0, |last| last + 1);
    &stack[..kept]
}

/// One frame as a line of text: function, position, and the module where there is no position.
pub fn describe(frame: &Frame, display: impl Fn(&str) -> String) -> String {
    let function = match &frame.function {
        Some(function) => function.clone(),
        // Of a log that has neither functions nor addresses.
        None if frame.address == 0 => "?".to_owned(),
        None => format!("0x{:x}", frame.address),
    };
    let place = match (&frame.file, frame.line) {
        // Where in `strncpy` it happened interests nobody, and its source is not here.
        _ if frame.in_libc() && frame.function.is_some() => " in libc".to_owned(),
        (Some(file), Some(line)) => format!(" at {}:{line}", display(file)),
        (Some(file), None) => format!(" at {}", display(file)),
        _ => match frame.module_name() {
            Some(module) if frame.function.is_some() => format!(" in {module}+0x{:x}", frame.address),
            Some(module) => format!(" in {module}"),
            None => String::new(),
        },
    };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    let helper = if frame.helper { " (helper)" } else { "" };
    format!("{function}{place}{inlined}{helper}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str) -> Frame {
        Frame {
            function: Some(function.to_owned()),
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: (!file.is_empty()).then_some(3),
            ..Frame::default()
        }
    }

    #[test]
    fn start_frames_go_away_main_stays() {
        let libc = Frame {
            module: Some("/lib/x86_64-linux-gnu/libc.so.6".into()),
            ..Frame::default()
        };
        let stack = [
            frame("main", "a.c"),
            libc.clone(),
            frame("__libc_start_main@@GLIBC_2.34", ""),
            frame("_start", ""),
        ];
        assert_eq!(trimmed(&stack).len(), 1);
        assert_eq!(trimmed(&[libc]).len(), 0);
        assert_eq!(trimmed(&[]).len(), 0);
    }

    #[test]
    fn compiler_headers_do_not_stand_for_a_stack() {
        let header = frame("_mm_clwb", "/usr/lib/gcc/x86_64-linux-gnu/12/include/clwbintrin.h");
        let clang = frame("_mm_sfence", "/usr/lib/llvm-19/lib/clang/19/include/xmmintrin.h");
        let user = frame("persist", "pm.h");
        assert_eq!(blamed(&[header.clone(), clang, user.clone()]), Some(&user));
        assert_eq!(blamed(std::slice::from_ref(&header)), Some(&header));
        assert_eq!(blamed_position(&[frame("f", "")]), None);
    }

    #[test]
    fn frames_as_text() {
        let same = |file: &str| file.to_owned();
        assert_eq!(describe(&frame("f", "a.c"), same), "f at a.c:3");
        let library = Frame {
            function: Some("pmem_memcpy".into()),
            module: Some("/usr/lib/libpmem.so.1".into()),
            address: 0x1f0,
            ..Frame::default()
        };
        assert_eq!(describe(&library, same), "pmem_memcpy in libpmem.so.1+0x1f0");
        assert_eq!(
            describe(
                &Frame {
                    function: None,
                    ..library
                },
                same
            ),
            "0x1f0 in libpmem.so.1"
        );
        assert_eq!(
            describe(
                &Frame {
                    address: 16,
                    inlined: true,
                    ..Frame::default()
                },
                same
            ),
            "0x10 (inlined)"
        );
    }

    /// Where a helper is shared, its callers are told apart.
    #[test]
    fn helpers_are_not_blamed() {
        let helper = |function: &str| Frame {
            helper: true,
            ..frame(function, "pm.h")
        };
        let (flush, persist, put) = (helper("flush"), helper("persist"), frame("put", "kv.c"));
        let main = helper("main");
        let libc = Frame {
            module: Some("/lib/x86_64-linux-gnu/libc.so.6".into()),
            address: 1,
            ..Frame::default()
        };
        let stack = [flush.clone(), persist.clone(), put.clone(), main.clone(), libc.clone()];
        assert_eq!(blamed(&stack), Some(&put));
        assert_eq!(skipped_helpers(&stack).collect::<Vec<_>>(), [&flush, &persist]);
        assert!(describe(&flush, str::to_owned).ends_with(" (helper)"));
        // Somebody has decided: the outermost.
        assert_eq!(blamed(&[flush.clone(), main.clone(), libc.clone()]), Some(&main));
        assert_eq!(blamed(std::slice::from_ref(&flush)), Some(&flush));
        // Nobody of the user's called what a library calls.
        let library = Frame {
            module: Some("/lib/libpmemobj.so.1".into()),
            ..frame("pmemobj_alloc", "")
        };
        assert_eq!(blamed(&[flush.clone(), library, put.clone(), main]), Some(&flush));
        // The caller's line is not known.
        assert_eq!(blamed(&[flush.clone(), frame("f", ""), libc]), Some(&flush));
    }

    /// With debug symbols of PMDK and of the C library, too, a finding is where the user called them.
    #[test]
    fn libraries_that_serve_their_callers_are_not_blamed() {
        let frame = |function: &str, file: Option<&str>, module: &str| Frame {
            function: Some(function.into()),
            file: file.map(str::to_owned),
            line: file.map(|_| 7),
            module: Some(module.into()),
            address: 0x10,
            ..Frame::default()
        };
        let memcpy = frame("memcpy", Some("/build/glibc/memcpy.c"), "/lib/libc.so.6");
        let persist = frame("pmem_persist", Some("/build/pmdk/pmem.c"), "/lib/libpmem.so.1");
        let user = frame("put", Some("/home/me/kv.c"), "/home/me/kv");
        let stripped = frame("put", None, "/home/me/kv");
        let stack = [memcpy.clone(), persist.clone(), user.clone()];
        assert_eq!(blamed(&stack), Some(&user));
        let without_lines = [persist.clone(), stripped.clone()];
        assert_eq!(blamed(&without_lines), Some(&stripped));
        assert_eq!(blamed_position(&without_lines), None);
        // A library without debug info between the user's code and PMDK.
        assert_eq!(blamed(&[persist.clone(), stripped, user.clone()]), Some(&user));
        // A constructor of the user's that PMDK calls back.
        let constructor = frame("make", None, "/home/me/plugin.so");
        assert_eq!(blamed(&[constructor.clone(), persist.clone()]), Some(&constructor));
        assert_eq!(blamed(&[constructor, persist.clone(), user.clone()]), Some(&user));
        // Nothing of the user's.
        assert_eq!(blamed(std::slice::from_ref(&persist)), Some(&persist));
        assert_eq!(blamed(&[]), None);
    }
}
