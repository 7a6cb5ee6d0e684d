//! The paper's figures 1 and 3, as a trace written by hand: `query` reads the token, the key if the token is set, the value if the key
//! matches.

use std::path::Path;

use crashproof_stacks::DeclaredHelpers;
use crashproof_trace::*;

use crate::{Conditions, InferError, Listing, Rule};

const TOKEN: u64 = 0;
const KEY: u64 = 64;
const VALUE: u64 = 128;
const THREAD: ThreadId = ThreadId(0);

struct Recording {
    writer: TraceWriter,
    query: [StackId; 3],
    insert: StackId,
    node: u64,
}

fn place(writer: &mut TraceWriter, function: &str, line: u32) -> StackId {
    let module = Module::of_place("level", Some(function), Some("/src/level.c"), Some(line));
    let module = writer.module(&module).unwrap();
    let frame = Frame {
        module: Some(module),
        address: 0,
    };
    writer.stack(&[frame]).unwrap()
}

impl Recording {
    fn new(path: &Path) -> Recording {
        let mut writer = TraceWriter::create(path, &Header::default()).unwrap();
        let start = EventKind::ProcessStart {
            process: ProcessId(0),
            pid: 1,
            parent: None,
            executable: "level",
        };
        writer.event(THREAD, StackId(0), &start).unwrap();
        let start = EventKind::ThreadStart {
            process: ProcessId(0),
            os_id: 1,
        };
        writer.event(THREAD, StackId(0), &start).unwrap();
        let pool = PmFile {
            path: "/pm/pool".into(),
            size: 4096,
            created: true,
            kind: PmFileKind::File,
        };
        writer.file(&pool).unwrap();
        Recording {
            query: [3, 4, 5].map(|line| place(&mut writer, "level_query", line)),
            insert: place(&mut writer, "level_insert", 18),
            writer,
            node: 0,
        }
    }

    fn event(&mut self, stack: StackId, kind: EventKind<'_>) {
        self.writer.event(THREAD, stack, &kind).unwrap();
    }

    fn access(&mut self, stack: StackId, store: bool, offset: u64, len: u32, depends: &[Dependence]) -> u64 {
        self.node += 1;
        let node = self.node;
        let at = PmAddress {
            file: FileId(0),
            offset,
        };
        let depends = Dependences::of(depends);
        let access = EventKind::Access {
            store,
            node,
            at,
            len,
            depends,
        };
        self.event(stack, access);
        node
    }

    fn store(&mut self, offset: u64, data: &[u8]) {
        let at = PmAddress {
            file: FileId(0),
            offset,
        };
        let flags = StoreFlags::default();
        self.event(self.insert, EventKind::Store { at, data, flags });
        self.access(self.insert, true, offset, data.len() as u32, &[]);
    }

    fn insert(&mut self) {
        self.store(KEY, b"k");
        self.store(VALUE, b"v");
        self.store(TOKEN, &[1]);
        self.end(b"inserted\n");
    }

    fn query(&mut self) {
        let on = |node| [Dependence { node, control: true }];
        let [token_line, key_line, value_line] = self.query;
        let token = self.access(token_line, false, TOKEN, 1, &[]);
        let key = self.access(key_line, false, KEY, 1, &on(token));
        self.access(value_line, false, VALUE, 1, &on(key));
        self.end(b"v\n");
    }

    fn end(&mut self, line: &[u8]) {
        self.event(StackId(0), EventKind::Output { fd: 1, data: line });
        self.event(StackId(0), EventKind::Path { blocks: 7, cuts: 0 });
    }
}

#[test]
fn figure_3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("level.trace");
    let mut recording = Recording::new(&path);
    recording.insert();
    recording.query();
    recording.query();
    recording.writer.finish(ProgramEnd::default()).unwrap();

    let conditions = Conditions::infer(&TraceFile::open(&path).unwrap()).unwrap();
    let orders: Vec<(Rule, u64, u64, u64)> = conditions
        .orders
        .iter()
        .map(|order| {
            let offset = |id| conditions.location(id).offset;
            (order.rule, offset(order.before), offset(order.after), order.count)
        })
        .collect();
    // I1: key before token, I2: value before token (by a chain of two), I3: value before key.
    let mut expected = [
        (Rule::Po3, KEY, TOKEN, 2),
        (Rule::Po3, VALUE, TOKEN, 2),
        (Rule::Po3, VALUE, KEY, 2),
    ];
    let mut orders = orders;
    orders.sort_unstable();
    expected.sort_unstable();
    assert_eq!(orders, expected);
    // I4: token and key persist together.
    let guardians: Vec<u64> = conditions
        .guardians
        .iter()
        .map(|guardian| conditions.location(guardian.location).offset)
        .collect();
    assert_eq!(guardians, [KEY, TOKEN]);
    assert!(conditions.guardians.iter().all(|guardian| guardian.of_reads));
    let blocks: Vec<Option<u64>> = (0..3).map(|n| conditions.operations[&Some(n)].blocks).collect();
    assert_eq!(blocks, [Some(7); 3]);

    let listing = Listing::new(&conditions, DeclaredHelpers::default());
    let sentences: Vec<&str> = listing.conditions.iter().map(|listed| listed.text.as_str()).collect();
    assert!(
        sentences.contains(
            &"what level_insert stores at level.c:18 must persist before what level_insert stores at level.c:18, because \
              level_query reads what level_insert stores at level.c:18 only if what level_insert stores at level.c:18 \
              allows it (level.c:4, which depends on line 3)"
        ),
        "{sentences:#?}"
    );
    assert_eq!(listing.busiest[0].dependents, 2);
    assert_eq!(listing.busiest[0].side.at.offset, TOKEN);
    let json = serde_json::to_value(&listing).unwrap();
    let first = &json["conditions"][0];
    assert_eq!(first["rule"], "PO3");
    assert_eq!(first["because"]["function"], "level_query");
    assert_eq!(first["before"]["line"], 18);
}

#[test]
fn without_dependences_the_remedy_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.trace");
    let recording = Recording::new(&path);
    recording.writer.finish(ProgramEnd::default()).unwrap();
    let error = Conditions::infer(&TraceFile::open(&path).unwrap()).unwrap_err();
    assert!(matches!(error, InferError::NoDependences { .. }));
    assert!(error.to_string().contains("crashproof cc --deps"), "{error}");
}
