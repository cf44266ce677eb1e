//! Each picture of the documentation is what the program `pictures` draws from the current data.

use std::path::{Path, PathBuf};

use redlock_tests::pictures::{IMAGES, digest};

use super::source::{read, tracked};

#[test]
fn no_picture_is_older_than_what_made_it() {
    let is_picture = |path: &PathBuf| path.starts_with(IMAGES) && path.extension().is_some_and(|ext| ext == "svg");
    let pictures: Vec<PathBuf> = tracked().into_iter().filter(is_picture).collect();
    assert!(pictures.len() >= 10, "only {pictures:?} were found: the search is broken");
    for path in pictures {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let (name, theme) = stem.rsplit_once('-').unwrap();
        assert!(["light", "dark"].contains(&theme), "{}: for which background?", path.display());
        let mark = format!("<!-- made from {} -->", digest(name));
        let is_current = read(&path).unwrap().contains(&mark);
        assert!(is_current, "{}: run `cargo run --release -p redlock-tests --bin pictures`", path.display());
    }
}

/// Each page with a picture names its two files, and describes the picture in words.
#[test]
fn pages_show_pictures_for_light_and_dark() {
    let files = tracked();
    let mut count = 0;
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "md")) {
        let text = read(path).unwrap();
        for line in text.lines().filter(|line| line.starts_with("<picture>")) {
            count += 1;
            let name = line.split("-light.svg").next().unwrap().rsplit('/').next().unwrap();
            for theme in ["light", "dark"] {
                let file = Path::new(IMAGES).join(format!("{name}-{theme}.svg"));
                let is_shown = line.contains(&format!("/{name}-{theme}.svg")) && files.contains(&file);
                assert!(is_shown, "{}: {}", path.display(), file.display());
            }
            assert!(line.contains(" alt=\""), "{}: {name} in words", path.display());
        }
    }
    assert!(count >= 5, "only {count} pictures are shown: the search is broken");
}
