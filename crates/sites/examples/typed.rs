//! Prints what each store of a trace writes: `typed TRACE`. With `--summary`, how many stores have a type.

use std::collections::HashMap;
use std::error::Error;

use crashproof_sites::{ModuleSites, Store, Typing};
use crashproof_stacks::{Stacks, file_name, is_c_runtime};
use crashproof_trace::{EventKind, Frame, Item, ModuleId, Tables, TraceReader};

/// Of the C library or PMDK, which stores for others.
fn is_library(frame: &Frame, tables: &Tables) -> bool {
    let module = frame.module.and_then(|id| tables.module(id));
    module.is_some_and(|module| {
        let name = file_name(&module.path);
        is_c_runtime(name) || name.starts_with("libpmem")
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which trace?")?;
    let summary = arguments.next().is_some_and(|argument| argument == "--summary");
    let mut reader = TraceReader::open(path)?;
    let mut stores = Vec::new();
    while let Some(item) = reader.next()? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            stores.push(Store {
                thread: event.thread,
                stack: event.stack,
                at,
                len: data.len(),
            });
        }
    }
    let tables = reader.tables();
    let mut typing = Typing::new();
    let types = typing.all(tables, &stores);
    for warning in typing.warnings() {
        eprintln!("warning: {warning}");
    }
    let typed = (0..stores.len()).filter(|&index| !types.of(index).is_empty()).count();
    println!("{typed} of {} stores have a type", stores.len());
    let mut built: HashMap<ModuleId, bool> = HashMap::new();
    let mut is_built = |store: &Store| {
        let Some(id) = tables.frames(store.stack).first().and_then(|frame| frame.module) else {
            return false;
        };
        let path = tables.module(id).map_or("", |module| module.path.as_str());
        *built
            .entry(id)
            .or_insert_with(|| matches!(ModuleSites::read(path.as_ref()), Ok(Some(_))))
    };
    let own: Vec<usize> = (0..stores.len()).filter(|&index| is_built(&stores[index])).collect();
    let typed = own.iter().filter(|&&index| !types.of(index).is_empty()).count();
    println!("{typed} of the {} by code that crashproof cc built", own.len());
    let mut sites: HashMap<_, bool> = HashMap::new();
    for (index, store) in stores.iter().enumerate() {
        let site = tables.frames(store.stack).iter().find(|frame| !is_library(frame, tables));
        *sites.entry(site).or_default() |= !types.of(index).is_empty();
    }
    let typed = sites.values().filter(|&&typed| typed).count();
    println!("{typed} of the {} places in the code that store, or call who does", sites.len());
    if summary {
        return Ok(());
    }
    let mut stacks = Stacks::default();
    for (index, store) in stores.iter().enumerate() {
        let symbolized = stacks.symbolize(store.stack, tables);
        let place = symbolized.frames.iter().find(|frame| frame.line.is_some());
        let place = place.map_or("?".into(), |frame| {
            let file = frame.file.as_deref().unwrap_or("");
            format!(
                "{}:{}",
                file.rsplit('/').next().unwrap_or(file),
                frame.line.unwrap_or(0)
            )
        });
        let types: Vec<String> = types
            .of(index)
            .iter()
            .map(|typed| {
                let (ty, field) = (typing.type_name(typed.ty), typing.field_name(typed.field));
                format!("{ty}@{:#x}.{field}", typed.instance.offset)
            })
            .collect();
        println!("{place} {:#x}+{}: {}", store.at.offset, store.len, types.join(" in "));
    }
    Ok(())
}
