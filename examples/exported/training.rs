//! Trains on points of two spirals with the function that training.py exported: the same as training.c, in Rust.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::fs;

extern "C" {
    fn training(inputs: *const *const c_void, outputs: *const *mut c_void, arena: *mut c_void) -> c_int;
    fn training_error(error: c_int) -> *const c_char;
}

const BATCH: usize = 64;
const STEPS: usize = 600;

#[allow(dead_code)] // only its alignment counts
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// The numbers that stand behind a key in the record of the function, in order.
fn numbers(record: &str, key: &str) -> Vec<usize> {
    let mark = format!("\"{key}\": ");
    record.split(&mark).skip(1).filter_map(|rest| rest.split(&[',', '\n'][..]).next()?.trim().parse().ok()).collect()
}

struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

fn draw(random: &mut Random, points: &mut [f32], labels: &mut [i32]) {
    for i in 0..BATCH {
        let turn = 4.0 * random.uniform();
        let radius = 0.2 + turn / 5.0;
        labels[i] = (random.uniform() < 0.5) as i32;
        let angle = turn * 1.5 + std::f32::consts::PI * labels[i] as f32;
        points[2 * i] = radius * angle.cos();
        points[2 * i + 1] = radius * angle.sin();
    }
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "out/training".to_string());
    let record = fs::read_to_string(format!("{folder}/training.json")).expect("the folder that training.py made");
    let (first, second) = record.split_once("\"outputs\"").expect("a list of outputs");
    let (sizes, arena_bytes) = (numbers(first, "bytes"), numbers(second, "arena_bytes")[0]);
    let state = sizes.len() - 2;
    let mut random = Random(7);
    let mut now: Vec<Vec<u64>> = sizes[..state].iter().map(|n| vec![0; n / 8 + 1]).collect();
    let mut next = now.clone();
    for (i, rows) in [(0, 2), (2, 48), (4, 48)] {
        let count = sizes[i] / 4;
        let weights = unsafe { std::slice::from_raw_parts_mut(now[i].as_mut_ptr() as *mut f32, count) };
        weights.iter_mut().for_each(|w| *w = (2.0 * random.uniform() - 1.0) * (3.0f32 / rows as f32).sqrt());
    }
    let (mut points, mut labels, mut loss) = ([0f32; 2 * BATCH], [0i32; BATCH], 0f32);
    let mut arena = vec![Line([0; 64]); arena_bytes / 64 + 1];
    for step in 0..STEPS {
        draw(&mut random, &mut points, &mut labels);
        let mut inputs: Vec<*const c_void> = now.iter().map(|x| x.as_ptr() as *const c_void).collect();
        inputs.extend([points.as_ptr() as *const c_void, labels.as_ptr() as *const c_void]);
        let mut outputs = vec![&mut loss as *mut f32 as *mut c_void];
        outputs.extend(next.iter_mut().map(|x| x.as_mut_ptr() as *mut c_void));
        let error = unsafe { training(inputs.as_ptr(), outputs.as_ptr(), arena.as_mut_ptr() as *mut c_void) };
        if error != 0 {
            panic!("{}", unsafe { CStr::from_ptr(training_error(error)) }.to_string_lossy());
        }
        std::mem::swap(&mut now, &mut next);
        if step % 100 == 0 || step == STEPS - 1 {
            println!("step {step}: loss {loss:.4}");
        }
    }
    assert!(loss < 0.3, "it has not learnt");
}
