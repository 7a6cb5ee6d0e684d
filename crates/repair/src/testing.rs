//! For tests: C snippets as a program, and findings at their lines.

use std::path::PathBuf;
use std::process::Command;

use crashproof_finding::{DurableBy, DurableByKind, Finding, Frame, Kind, Related, Severity};
use crashproof_llvm::Context;
use crashproof_program::Program;

/// A compiled snippet. Lines are named by comments in it: `//@ name`.
pub(crate) struct Snippet<'context> {
    pub program: Program<'context>,
    text: String,
    path: PathBuf,
}

/// What snippets begin with, in one line.
const PRELUDE: &str = "#include <stdint.h>\n#include <string.h>\n#include <stdlib.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    #define CLWB(p) __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)(p)) : : \"memory\")\n\
    #define SFENCE() __asm__ volatile(\"sfence\" : : : \"memory\")\n";

impl<'context> Snippet<'context> {
    pub(crate) fn c(context: &'context Context, text: &str) -> Snippet<'context> {
        Snippet::compile(context, text, "c", "clang-19")
    }

    pub(crate) fn cpp(context: &'context Context, text: &str) -> Snippet<'context> {
        Snippet::compile(context, text, "cpp", "clang++-19")
    }

    fn compile(context: &'context Context, text: &str, extension: &str, compiler: &str) -> Snippet<'context> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(format!("snippet.{extension}"));
        let text = format!("{PRELUDE}{text}");
        std::fs::write(&path, &text).expect("the snippet");
        let bitcode = folder.path().join("snippet.bc");
        let status = Command::new(compiler)
            .args(["-O0", "-Xclang", "-disable-O0-optnone", "-g", "-emit-llvm", "-c", "-o"])
            .args([&bitcode, &path])
            .status()
            .expect("clang-19");
        assert!(status.success());
        let module = context.read_bitcode(&bitcode).expect("bitcode");
        let program = Program::of(module);
        Snippet { program, text, path }
    }

    pub(crate) fn line(&self, name: &str) -> u32 {
        let mark = format!("//@ {name}");
        let found = self.text.lines().position(|line| line.trim_end().ends_with(&mark));
        found.unwrap_or_else(|| panic!("no line {name}")) as u32 + 1
    }

    /// `function@line`, innermost first; a function without a line is one of a library.
    pub(crate) fn stack(&self, frames: &str) -> Vec<Frame> {
        let frame = |word: &str| {
            let (function, line) = match word.split_once('@') {
                Some((function, line)) => (function, Some(self.line(line))),
                None => (word, None),
            };
            Frame {
                function: Some(function.to_owned()),
                file: line.map(|_| self.path.to_string_lossy().into_owned()),
                line,
                ..Frame::default()
            }
        };
        frames.split_whitespace().map(frame).collect()
    }

    pub(crate) fn finding(&self, kind: Kind, stack: &str, durable_by: Option<(DurableByKind, &str)>) -> Finding {
        Finding {
            kind,
            severity: Severity::Error,
            file: None,
            line: None,
            column: None,
            function: None,
            count: 1,
            message: String::new(),
            address: None,
            stack: self.stack(stack),
            durable_by: durable_by.map(|(kind, stack)| DurableBy {
                kind,
                stack: self.stack(stack),
            }),
            approximate: false,
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            crash: None,
            order: Vec::new(),
        }
    }

    pub(crate) fn missing_flush(&self, stack: &str, kind: DurableByKind, durable_by: &str) -> Finding {
        self.finding(Kind::MissingFlush, stack, Some((kind, durable_by)))
    }

    pub(crate) fn missing_fence(&self, stack: &str, flushed: &str, kind: DurableByKind, durable_by: &str) -> Finding {
        let related = vec![Related {
            message: "flushed here".into(),
            stack: self.stack(flushed),
        }];
        Finding {
            related,
            ..self.finding(Kind::MissingFence, stack, Some((kind, durable_by)))
        }
    }
}
