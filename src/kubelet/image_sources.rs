//! The digests of the watched files of Image objects, in reports of the machine and in the objects' status.

use crate::kinds::image::RESOURCE;
use crate::world::{SourceDigests, World};

/// Returns the digests of the files that are watched now; `None` until they were reported.
pub fn seen_sources<'w>(world: &'w World, image: &str) -> Option<&'w SourceDigests> {
    let (files, seen) = world.facts.sources.get(image)?;
    (world.orders.watched.get(image) == Some(files)).then_some(seen)
}

/// Returns the digests of an image's files once the status of the Image object has them.
pub fn settled_sources(world: &World, image: &str) -> Option<SourceDigests> {
    let seen = seen_sources(world, image)?;
    let row = world.find(RESOURCE, "", image)?;
    let object = row.body();
    (object.text(&["status", "sources", "digest"]) == Some(&*seen.digest)).then(|| seen.clone())
}
