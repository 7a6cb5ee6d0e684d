//! A million damaged traces: the reader must neither panic nor hand out what an analysis could trip over. Most inputs get
//! right checksums again after the damage, so that it reaches the decoder of the records.

use crate::common;

use std::thread;

use common::*;
use crashproof_trace::*;

const INPUTS: u64 = 1_000_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n.max(1)
    }
}

/// Cuts a valid trace into its header and its blocks: their records, and how many of them are events.
fn take_apart(bytes: &[u8]) -> (Vec<u8>, Vec<(Vec<u8>, u32)>) {
    let mut at = format::encode_header(&header()).unwrap().len();
    let head = bytes[..at].to_vec();
    let mut blocks = Vec::new();
    while at < bytes.len() {
        let (block_header, rest) = bytes[at..].split_first_chunk().unwrap();
        let block_header = format::BlockHeader::decode(block_header).unwrap();
        let mut raw = Vec::new();
        format::open_block(&block_header, &rest[..block_header.packed_len as usize], &mut raw).unwrap();
        blocks.push((raw, block_header.events));
        at += format::BLOCK_HEADER + block_header.packed_len as usize;
    }
    (head, blocks)
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            4 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            5 => {
                // The largest numbers.
                let number = [[0xff; 10].as_slice(), &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xfe; 9]][random.below(3)];
                bytes.splice(at..at, number.iter().copied());
            }
            6 => {
                let end = (at + random.below(40)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ if !bytes.is_empty() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
}

fn input(head: &[u8], blocks: &[(Vec<u8>, u32)], whole: &[u8], random: &mut Random) -> Vec<u8> {
    match random.below(16) {
        0 => {
            let mut bytes = whole.to_vec();
            damage(&mut bytes, random);
            bytes
        }
        1 => {
            // A right checksum over bytes that the compressor did not write.
            let mut block = Vec::new();
            format::seal_block(&blocks[0].0, 0, 0, &mut block);
            let mut packed = block.split_off(format::BLOCK_HEADER);
            damage(&mut packed, random);
            let block_header = format::BlockHeader {
                raw_len: (blocks[0].0.len() + random.below(3)) as u32,
                packed_len: packed.len() as u32,
                events: 0,
                first_seq: 0,
                payload_crc: crc32fast::hash(&packed),
            };
            [head, &block_header.encode(), &packed].concat()
        }
        2 => {
            let random_bytes: Vec<u8> = (0..random.below(64)).map(|_| random.next() as u8).collect();
            let mut block = Vec::new();
            format::seal_block(&random_bytes, 0, 1, &mut block);
            [head, &block].concat()
        }
        _ => {
            let mut bytes = head.to_vec();
            let mut seq = 0;
            let mut block = Vec::new();
            // One block is damaged, so that those after it have something to refer to.
            let damaged = random.below(blocks.len());
            for (n, (raw, events)) in blocks.iter().enumerate() {
                let mut raw = raw.clone();
                if n == damaged {
                    damage(&mut raw, random);
                }
                format::seal_block(&raw, seq, *events, &mut block);
                bytes.extend_from_slice(&block);
                seq += *events as u64;
            }
            bytes
        }
    }
}

/// Everything that analyses may rely on. Returns the number of items.
fn check(bytes: Vec<u8>, describe: bool) -> u64 {
    let (mut items, mut seq) = (0, 0);
    let Ok(mut reader) = open(bytes) else { return 0 };
    let check_at = |at: PmAddress, len: u64, tables: &Tables| {
        assert!(tables.file(at.file).is_some());
        assert!(at.offset.checked_add(len).is_some_and(|end| end <= format::MAX_OFFSET));
    };
    while let Ok(Some((item, tables))) = reader.next_with_tables() {
        items += 1;
        if describe {
            assert!(!dump::describe(&item, tables).to_string().contains('\n'));
        }
        let event = match item {
            Item::Initial { at, data } => {
                check_at(at, data.len() as u64, tables);
                continue;
            }
            Item::Event(event) => event,
        };
        assert_eq!(event.seq, seq);
        seq += 1;
        assert!(event.stack.index() < tables.stack_count());
        for frame in tables.frames(event.stack) {
            assert!(frame.module.is_none_or(|module| tables.module(module).is_some()));
        }
        match event.kind {
            EventKind::ProcessStart { process, .. } | EventKind::ProcessEnd { process, .. } => {
                assert!(tables.process(process).is_some());
                continue;
            }
            EventKind::Quiet => continue,
            EventKind::Store { at, data, .. } => {
                assert!(data.len() <= format::MAX_STORE);
                check_at(at, data.len() as u64, tables);
            }
            EventKind::Flush { at, .. } => check_at(at, 0, tables),
            EventKind::FileWrite { at, data } => check_at(at, data.len() as u64, tables),
            EventKind::Map { file, offset, len, .. }
            | EventKind::Unmap { file, offset, len }
            | EventKind::Sync { file, offset, len } => check_at(PmAddress { file, offset }, len, tables),
            EventKind::Resize { file, size } => check_at(PmAddress { file, offset: 0 }, size, tables),
            EventKind::Rename { file, .. } => check_at(PmAddress { file, offset: 0 }, 0, tables),
            EventKind::Request {
                range: Some((at, len)), ..
            } => check_at(at, len, tables),
            EventKind::Access {
                node, at, len, depends, ..
            } => {
                check_at(at, len as u64, tables);
                assert_eq!(depends.iter().count(), depends.len());
                assert!(depends.iter().all(|on| on.node < node));
            }
            EventKind::Request { .. }
            | EventKind::Path { .. }
            | EventKind::Fence { .. }
            | EventKind::Output { .. }
            | EventKind::Call { .. }
            | EventKind::Return(_)
            | EventKind::Annotation(_)
            | EventKind::ThreadStart { .. } => {}
        }
        assert!(tables.process_of(event.thread).is_some());
    }
    assert!(matches!(reader.next(), Ok(None)));
    items
}

#[test]
fn a_million_damaged_traces() {
    let whole = small_trace();
    let (head, blocks) = take_apart(&whole);
    let threads = thread::available_parallelism().map_or(2, |n| n.get() as u64);
    let items: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (head, blocks, whole) = (&head, &blocks, &whole);
                scope.spawn(move || {
                    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (worker + 1));
                    let mine = INPUTS.div_ceil(threads);
                    (0..mine)
                        .map(|n| check(input(head, blocks, whole, &mut random), n % 16 == 0))
                        .sum::<u64>()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    // The damage must not keep the inputs from the decoder.
    assert!(items > 10 * INPUTS, "{items}");
}
