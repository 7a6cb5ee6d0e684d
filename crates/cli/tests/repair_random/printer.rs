//! A random program as text, with all its flushes and fences or without some.

use std::fmt::Write;

use crate::generator::Statement::{self, Fence, Flush, For, If, Plain};
use crate::generator::{Idiom, Program, Random};

const HEAD: &str = include_str!("head.c");

/// How many of its flushes and fences a program has lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removed {
    pub flushes: usize,
    pub fences: usize,
}

impl Program {
    /// The source as it is right.
    pub(crate) fn whole(&self) -> String {
        self.print(&mut |_| true).0
    }

    /// Without some of its flushes: each is left out with a chance of one in `flush`, a fence with one in `fence`.
    pub(crate) fn without(&self, random: &mut Random, flush: u64, fence: Option<u64>) -> (String, Removed) {
        self.print(&mut |is_fence| match (is_fence, fence) {
            (false, _) => !random.one_in(flush),
            (true, Some(n)) => !random.one_in(n),
            (true, None) => true,
        })
    }

    fn print(&self, keep: &mut dyn FnMut(bool) -> bool) -> (String, Removed) {
        let mut printer = Printer {
            text: HEAD.to_owned(),
            removed: Removed::default(),
            keep,
            idiom: self.idiom,
            braces: self.braces,
        };
        for function in &self.functions {
            let _ = writeln!(printer.text, "\n__attribute__((noinline)) {} {{", function.signature);
            printer.block(&function.body, 1);
            printer.text.push_str("}\n");
        }
        printer
            .text
            .push_str("\nint main(int argc, char **argv) {\n    struct root *root = open_root(argv[argc - 1]);\n");
        printer.block(&self.runs, 1);
        printer.text.push_str(
            "    printf(\"%lx %lx %lx\\n\", (unsigned long)sum(root, sizeof *root), (unsigned long)sum(cache, sizeof cache),\n           \
             (unsigned long)sum(buffers, sizeof buffers));\n    return 0;\n}\n",
        );
        (printer.text, printer.removed)
    }
}

struct Printer<'k> {
    text: String,
    removed: Removed,
    /// Of a flush or, if so said, a fence.
    keep: &'k mut dyn FnMut(bool) -> bool,
    idiom: Idiom,
    braces: bool,
}

impl Printer<'_> {
    fn block(&mut self, statements: &[Statement], depth: usize) {
        let indent = "    ".repeat(depth);
        let mut statements = statements.iter().peekable();
        while let Some(statement) = statements.next() {
            match statement {
                Plain(text) => _ = writeln!(self.text, "{indent}{text}"),
                Flush(place) => {
                    let followed = self.idiom == Idiom::Persist && matches!(statements.peek(), Some(Fence));
                    let flush = self.kept(false);
                    let fence = followed && {
                        statements.next();
                        self.kept(true)
                    };
                    let call = match (flush, fence) {
                        (true, true) => format!("pm_persist(&{place}, sizeof {place});"),
                        (true, false) => format!("pm_flush(&{place}, sizeof {place});"),
                        (false, true) => "pm_fence();".to_owned(),
                        (false, false) => continue,
                    };
                    let _ = writeln!(self.text, "{indent}{call}");
                }
                Fence => {
                    if self.kept(true) {
                        let _ = writeln!(self.text, "{indent}pm_fence();");
                    }
                }
                If(condition, then, otherwise) => {
                    let _ = write!(self.text, "{indent}if ({condition})");
                    let braces = self.body(then, depth);
                    if !otherwise.is_empty() {
                        let _ = match braces {
                            true => write!(self.text, " else"),
                            false => write!(self.text, "{indent}else"),
                        };
                        let braces = self.body(otherwise, depth);
                        self.text.push_str(if braces { "\n" } else { "" });
                    } else if braces {
                        self.text.push('\n');
                    }
                }
                For { variable, count, body } => {
                    let _ = write!(
                        self.text,
                        "{indent}for (int {variable} = 0; {variable} < {count}; {variable}++)"
                    );
                    if self.body(body, depth) {
                        self.text.push('\n');
                    }
                }
            }
        }
    }

    /// A block with braces, without the last newline, or one statement without; says which.
    fn body(&mut self, statements: &[Statement], depth: usize) -> bool {
        let start = self.text.len();
        self.block(statements, depth + 1);
        let body = self.text.split_off(start);
        let braces = self.braces || body.lines().count() != 1;
        if braces {
            let _ = write!(self.text, " {{\n{body}{}}}", "    ".repeat(depth));
        } else {
            let _ = write!(self.text, "\n{body}");
        }
        braces
    }

    fn kept(&mut self, is_fence: bool) -> bool {
        let kept = (self.keep)(is_fence);
        match is_fence {
            _ if kept => {}
            true => self.removed.fences += 1,
            false => self.removed.flushes += 1,
        }
        kept
    }
}
