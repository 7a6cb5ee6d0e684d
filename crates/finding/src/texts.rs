//! Every frame and every text of a finding or a report, for those that rename files in them.

use crate::{Crash, CrashStore, FileOperation, Finding, Frame, OutputDifference, Report};

impl Finding {
    /// Visits every frame.
    pub fn for_each_frame_mut(&mut self, visit: &mut dyn FnMut(&mut Frame)) {
        self.stack.iter_mut().for_each(&mut *visit);
        let by = self.durable_by.iter_mut().flat_map(|by| &mut by.stack);
        let related = self.related.iter_mut().flat_map(|related| &mut related.stack);
        by.chain(related).for_each(&mut *visit);
        for order in &mut self.order {
            visit(&mut order.before);
            visit(&mut order.after);
        }
        let Some(crash) = &mut self.crash else { return };
        visit(&mut crash.after);
        crash.after_stack.iter_mut().for_each(&mut *visit);
        for store in crash.persisted.iter_mut().chain(&mut crash.missing) {
            visit(&mut store.frame);
            store.stack.iter_mut().for_each(&mut *visit);
        }
        if let Some(violates) = &mut crash.violates {
            visit(&mut violates.because);
        }
    }

    /// Every text but what only an HTML page shows.
    pub fn for_each_text_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        self.for_each_frame_mut(&mut |frame| {
            let texts = [&mut frame.function, &mut frame.file, &mut frame.module];
            texts.into_iter().flatten().for_each(&mut *visit);
        });
        let optional = [&mut self.function, &mut self.file, &mut self.help];
        optional.into_iter().flatten().for_each(&mut *visit);
        visit(&mut self.message);
        let related = self.related.iter_mut().map(|related| &mut related.message);
        related.chain(&mut self.notes).for_each(&mut *visit);
        if let Some(address) = &mut self.address {
            visit(&mut address.file);
        }
        if let Some(crash) = &mut self.crash {
            crash.for_each_text_mut(visit);
        }
    }
}

impl Crash {
    fn for_each_text_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        for CrashStore { pm, operation, .. } in self.persisted.iter_mut().chain(&mut self.missing) {
            visit(&mut pm.file);
            if let Some(FileOperation::Renamed { path }) = operation {
                visit(path);
            }
        }
        let recovery = &mut self.recovery;
        let texts = [&mut recovery.command, &mut recovery.stdout, &mut recovery.stderr];
        texts.into_iter().for_each(&mut *visit);
        if let Some(replay) = &mut self.replay {
            visit(&mut replay.directory);
            visit(&mut replay.command);
        }
        if let Some(violates) = &mut self.violates {
            visit(&mut violates.text);
        }
        if let Some(OutputDifference {
            text,
            differs_text,
            expected,
            got,
            ..
        }) = &mut self.output
        {
            [text, differs_text].into_iter().flatten().for_each(&mut *visit);
            let expected = expected.iter_mut().flat_map(|expected| &mut expected.output);
            expected.chain(got).for_each(&mut *visit);
        }
    }
}

impl Report {
    /// Every text but what only an HTML page shows; and but the patch, whose paths are relative.
    pub fn for_each_text_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        for finding in &mut self.findings {
            finding.for_each_text_mut(visit);
        }
        let texts = self.program.command.iter_mut().chain(&mut self.trace.incomplete);
        texts.chain(&mut self.warnings).for_each(&mut *visit);
        for inconclusive in &mut self.inconclusive {
            visit(&mut inconclusive.message);
            inconclusive.notes.iter_mut().for_each(&mut *visit);
            visit(&mut inconclusive.help);
        }
        for file in &mut self.files {
            visit(&mut file.path);
        }
        for file in &mut self.left_out {
            visit(&mut file.path);
            file.option.iter_mut().for_each(&mut *visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Report;

    /// A report in which every text names a file below `/copy`.
    const REPORT: &str = r#"{
        "version": 1,
        "program": {"status": 0, "signal": null, "command": ["/copy/app"]},
        "trace": {"stores": 1, "flushes": 0, "fences": 0, "complete": false, "incomplete": ["/copy/i"]},
        "inconclusive": [{"reason": "no-stores", "message": "/copy/m", "notes": ["/copy/n"], "help": "/copy/h"}],
        "warnings": ["/copy/w"],
        "files": [{"path": "/copy/pool", "stores": 1, "flushes": 0, "syncs": 0, "findings": 0}],
        "left_out": [{"path": "/copy/lock", "reason": "lock-file", "option": "--pm /copy/lock"}],
        "findings": [{
            "kind": "crash-order", "severity": "error", "file": "/copy/a.c", "line": 1, "column": 1, "function": "/copy/f",
            "count": 1, "message": "/copy/m", "address": {"file": "/copy/pool", "offset": 0, "length": 8},
            "stack": [FRAME],
            "durable_by": {"kind": "exit", "stack": [FRAME]},
            "related": [{"message": "/copy/r", "stack": [FRAME]}],
            "notes": ["/copy/n"], "help": "/copy/h",
            "order": [{"before": FRAME, "after": FRAME}],
            "crash": {
                "after": FRAME, "after_stack": [FRAME], "states": 1, "depth": 1,
                "persisted": [STORE], "missing": [STORE],
                "recovery": {"command": "/copy/c", "status": 1, "signal": null, "timeout": false, "stdout": "/copy/o", "stderr": "/copy/e"},
                "replay": {"directory": "/copy/d", "command": "/copy/c"},
                "violates": {"rule": "PO1", "text": "/copy/t", "because": FRAME},
                "operation": 1, "operation_text": "/copy/t", "differs_at": 2, "differs_at_text": "/copy/t", "operations_after": 1,
                "first_line": 0, "lines_from": 0, "expected": [{"outcome": "done", "output": ["/copy/x"]}], "got": ["/copy/g"]
            }
        }]
    }"#;
    const FRAME: &str =
        r#"{"function": "/copy/f", "file": "/copy/a.c", "line": 1, "column": 1, "module": "/copy/app", "address": 1}"#;
    const STORE: &str = r#"{"function": "/copy/f", "file": "/copy/a.c", "line": 1, "column": 1, "module": "/copy/app", "address": 1,
        "stack": [FRAME], "pm": {"file": "/copy/pool", "offset": 0, "length": 8}, "data": "00", "operation": {"renamed": {"path": "/copy/p"}}}"#;

    #[test]
    fn every_text_is_visited_once() {
        let text = REPORT.replace("STORE", STORE).replace("FRAME", FRAME);
        let report: Report = serde_json::from_str(&text).expect("a report");
        let mut renamed = report.clone();
        renamed.for_each_text_mut(&mut |text| text.insert_str(0, "/new"));
        let expected = serde_json::to_string(&report)
            .expect("JSON")
            .replace("/copy/", "/new/copy/");
        let expected = expected.replace("--pm /new", "/new--pm ");
        assert_eq!(serde_json::to_string(&renamed).expect("JSON"), expected);
    }
}
