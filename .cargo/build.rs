//! Links debug builds at a fixed address. The tests start the debug binary thousands of times, and a third of each start went into the
//! relocations of its 80 MB. Release builds keep a random address.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=.cargo/build.rs");
    if var("PROFILE").as_deref() == Ok("debug") && var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
