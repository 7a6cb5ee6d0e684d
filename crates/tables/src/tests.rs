//! The sections as a linker leaves them, whole and damaged.

use proptest::prelude::*;

use crate::layout::{field_name, nest};
use crate::section::{self, Content, Defect, frames, pc_entries};
use crate::*;

fn field(name: &str, offset: u64, size: u64) -> Field {
    Field {
        name: name.into(),
        offset,
        size,
        ty: None,
        elements: None,
        points_to: None,
    }
}

/// struct pair { u32 a, b }; struct node { u64 key; pair in; pair pairs[2]; union word { u64 whole; pair halves } u; char tail[] }
fn types() -> Vec<TypeInfo> {
    let info = |name: &str, size, is_union, fields| TypeInfo {
        name: name.into(),
        size,
        is_union,
        fields,
    };
    let of = |ty, field| Field { ty: Some(ty), ..field };
    let array = |elements, field| Field {
        elements: Some(elements),
        ..field
    };
    vec![
        info("pair", 8, false, vec![field("a", 0, 4), field("b", 4, 4)]),
        info(
            "node",
            40,
            false,
            vec![
                field("key", 0, 8),
                of(0, field("in", 8, 8)),
                array(2, of(0, field("pairs", 16, 16))),
                of(2, field("u", 32, 8)),
                array(0, field("tail", 40, 0)),
            ],
        ),
        info(
            "word",
            8,
            true,
            vec![field("whole", 0, 8), of(0, field("halves", 0, 8))],
        ),
    ]
}

fn table(object: u64) -> ObjectTable {
    ObjectTable {
        object,
        source: "a.c".into(),
        types: types(),
        sites: vec![Site {
            kind: SiteKind::Store,
            location: Vec::new(),
            merged: Vec::new(),
            target: Target::Place(Place {
                levels: vec![Level {
                    ty: 1,
                    offset: 8,
                    array: None,
                }],
                size: Some(8),
                argument: None,
            }),
        }],
        ..ObjectTable::default()
    }
}

/// One of everything that a table can hold.
fn full_table() -> ObjectTable {
    let location = |line| Location {
        function: "f".into(),
        file: "a.c".into(),
        line,
        column: 3,
    };
    let argument = Argument {
        function: "f".into(),
        index: 1,
        offset: Some(-8),
    };
    let place = Place {
        levels: vec![Level {
            ty: 1,
            offset: 16,
            array: Some(16),
        }],
        size: Some(8),
        argument: Some(argument.clone()),
    };
    let targets = [
        Target::Unknown,
        Target::NoStruct,
        Target::Place(place),
        Target::Argument(argument),
        Target::Unknown,
        Target::Unknown,
    ];
    let kinds = [
        SiteKind::Store,
        SiteKind::NontemporalStore,
        SiteKind::Atomic,
        SiteKind::Memory,
        SiteKind::Flush,
        SiteKind::Fence,
    ];
    let sites = kinds.into_iter().zip(targets.clone()).map(|(kind, target)| Site {
        kind,
        location: vec![location(7), location(9)],
        merged: vec![location(8)],
        target,
    });
    ObjectTable {
        directory: "/src".into(),
        command: vec!["cc".into(), "a.c".into()],
        sites: sites.collect(),
        calls: vec![Call {
            at: location(11),
            callee: Some("g".into()),
            arguments: targets
                .into_iter()
                .enumerate()
                .map(|(index, target)| (index as u32, target))
                .collect(),
        }],
        ..table(5)
    }
}

#[test]
fn another_layout_of_the_table_has_another_version() {
    // FNV-1a. If this fails the layout has changed: give it the next version, and this test the new pair.
    let bytes = postcard::to_stdvec(&full_table()).unwrap();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    assert_eq!(
        (section::VERSION, bytes.len(), hash),
        (1, 361, 10_833_976_705_034_590_215)
    );
}

#[test]
fn judged_functions_by_name_and_file() {
    let judged = |function: &str, file: &str, is_helper| JudgedFunction {
        function: function.into(),
        file: file.into(),
        is_helper: Some(is_helper),
    };
    let open = |function: &str, file: &str| JudgedFunction {
        function: function.into(),
        file: file.into(),
        is_helper: None,
    };
    let mut section = section::judged_frame(1, &[judged("set", "/a/pm.h", true), judged("put", "/a/a.c", false)]);
    section.extend([0; 16]);
    section.extend(section::judged_frame(
        2,
        &[
            judged("set", "/a/pm.h", true),
            judged("set", "/a/b.c", false),
            judged("put", "/a/x/../a.c", true),
            judged("add", "/a/a.c", true),
            open("add", "/b/a.c"),
            open("add", "/a/pm.h"),
            judged("add", "/a/pm.h", true),
        ],
    ));
    let functions = JudgedFunctions::decode(&section);
    assert_eq!(functions.is_helper("set", "/a/./b/../pm.h"), Some(true));
    assert_eq!(
        functions.is_helper("set", "/lib/pm.h"),
        None,
        "another file of that name"
    );
    assert_eq!(functions.is_helper("set", "/a/b.c"), Some(false));
    assert_eq!(functions.is_helper("set", "/a/c.c"), None);
    assert_eq!(functions.is_helper("put", "/a/a.c"), None, "two that differ");
    assert_eq!(functions.is_helper("get", "/a/a.c"), None);
    assert_eq!(functions.is_helper("add", "/a/a.c"), Some(true));
    assert_eq!(functions.is_helper("add", "/b/a.c"), None, "left open");
    assert_eq!(functions.is_helper("add", "/a/pm.h"), None, "left open in one object");
    // What is lost by damage might contradict the rest.
    let cut = JudgedFunctions::decode(&section[..section.len() - 8]);
    assert_eq!(cut.is_helper("set", "/a/pm.h"), None);
}

fn pc(address: u64, object: u64, site: u32) -> Vec<u8> {
    [
        &address.to_le_bytes()[..],
        &object.to_le_bytes(),
        &u64::from(site).to_le_bytes(),
    ]
    .concat()
}

#[test]
fn names_of_fields() {
    let types = types();
    let name = |offset, size| field_name(&types, 1, offset, size);
    assert_eq!(name(0, 8), "key");
    assert_eq!(name(12, 4), "in.b");
    assert_eq!(name(8, 8), "in");
    assert_eq!(name(28, 4), "pairs[].b");
    assert_eq!(name(16, 16), "pairs[]");
    assert_eq!(name(0, 16), "key+in");
    assert_eq!(name(0, 40), "bytes 0..40");
    assert_eq!(name(36, 4), "u.whole|halves");
    assert_eq!(name(45, 1), "tail[]");
    assert_eq!(field_name(&types, 7, 3, 2), "bytes 3..5");
}

#[test]
fn nested_structs() {
    let types = types();
    let inside =
        |offset, size| -> Vec<(u32, u64)> { nest(&types, 1, offset, size).iter().map(|i| (i.ty, i.offset)).collect() };
    assert_eq!(inside(12, Some(4)), [(1, 12), (0, 4)]);
    assert_eq!(inside(28, Some(4)), [(1, 28), (0, 4)]);
    assert_eq!(inside(8, Some(16)), [(1, 8)]);
    // Which member of the union is meant is not known.
    assert_eq!(inside(32, Some(4)), [(1, 32), (2, 0)]);
    assert_eq!(inside(8, None), [(1, 8), (0, 0)]);
    assert_eq!(inside(0, None), [(1, 0)]);
}

#[test]
fn linkers_concatenate_and_pad() {
    let mut sites = section::table_frame(&table(1));
    sites.extend([0; 24]);
    sites.extend(section::table_frame(&table(2)));
    sites.extend([0; 8]);
    let pc = [pc(0x2000, 2, 0), pc(0, 1, 0), pc(0x1000, 1, 0), pc(u64::MAX, 1, 0)].concat();
    let module = ModuleSites::decode(&sites, &pc).unwrap();
    assert_eq!(module.objects(), [table(1), table(2)]);
    assert_eq!(module.pc_entries().len(), 2);
    assert!(module.site_at(0xfff).is_none());
    assert_eq!(module.site_at(0x1004).unwrap().0, 0);
    assert_eq!(module.site_at(0x2000).unwrap().0, 1);
}

#[test]
fn damage_is_named() {
    let frame = section::table_frame(&table(1));
    let of = |sites: &[u8]| ModuleSites::decode(sites, &[]).unwrap_err();
    let (section, malformed) = of(&frame[..frame.len() - 16]);
    assert_eq!(
        (section, malformed.offset, malformed.defect),
        (section::SITES, 0, Defect::Truncated)
    );
    let mut newer = frame.clone();
    newer[8] = 9;
    assert_eq!(of(&newer).1.defect, Defect::Version(9));
    let second = [&frame[..], b"garbage"].concat();
    assert_eq!(of(&second).1.offset, frame.len() as u64);
    let mut wild = table(1);
    wild.types[1].fields[1].ty = Some(77);
    assert_eq!(of(&section::table_frame(&wild)).1.defect, Defect::Index);
    let cut = ModuleSites::decode(&frame, &[1; 30]).unwrap_err();
    assert_eq!(
        (cut.0, cut.1.offset, cut.1.defect),
        (section::PC, 24, Defect::PcTruncated)
    );
}

#[test]
fn a_file_that_is_no_binary() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(matches!(ModuleSites::read(&path), Err(SitesError::Elf { .. })));
    assert!(matches!(ModuleSites::read("/".as_ref()), Err(SitesError::File { .. })));
    // This test was not built by crashproof cc.
    assert!(ModuleSites::read(&std::env::current_exe().unwrap()).unwrap().is_none());
}

proptest! {
    /// Whatever the sections hold, reading them ends, and what was read can be used.
    #[test]
    fn damaged_sections_never_panic(cut in 0usize..400, flips in prop::collection::vec((0usize..400, any::<u8>()), 0..6)) {
        let mut sites = [section::table_frame(&table(1)), section::table_frame(&table(2))].concat();
        for (at, byte) in flips {
            let len = sites.len();
            sites[at % len] = byte;
        }
        let kept = sites.len().saturating_sub(cut);
        if let Ok(module) = ModuleSites::decode(&sites[..kept], &pc(0x1000, 1, 0)) {
            for object in module.objects() {
                for ty in 0..object.types.len() as u32 {
                    for (offset, size) in [(0, 1), (3, 8), (u64::MAX, 8), (8, u64::MAX)] {
                        nest(&object.types, ty, offset, Some(size));
                        field_name(&object.types, ty, offset, size);
                    }
                }
            }
            let _ = module.site_at(0x1001);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for content in [Content::Bitcode, Content::Sites, Content::Helpers] {
            let framed = section::frame(content, 5, &bytes);
            let found: Vec<_> = frames(content, &framed).collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].unwrap().1.payload, &bytes[..]);
            let _ = frames(content, &bytes).count();
        }
        let _ = pc_entries(&bytes);
        let _ = JudgedFunctions::decode(&section::frame(Content::Helpers, 5, &bytes));
        let _ = ModuleSites::decode(&section::frame(Content::Sites, 5, &bytes), &bytes);
    }
}
