//! What the terminal can show, from flags and environment.

use ratatui::style::Color;

/// The `--color` flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColorChoice {
    /// By the environment: `NO_COLOR`, `TERM`, `COLORTERM`.
    #[default]
    Auto,
    /// Colours even where `NO_COLOR` is set.
    Always,
    /// No colours.
    Never,
}

/// How many colours there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColorLevel {
    /// None: bold, dim, underline and reverse only.
    None,
    /// The 16 of the terminal's own palette.
    Ansi16,
    /// The 256 of xterm.
    Ansi256,
    /// 24 bit.
    TrueColor,
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Colours.
    pub color: ColorLevel,
    /// True when only ASCII may be drawn.
    pub ascii: bool,
}

impl Caps {
    /// From the flags and this process's environment.
    pub fn detect(color: ColorChoice, ascii: bool) -> Caps {
        Caps::from_env(color, ascii, |name| std::env::var(name).ok())
    }

    /// From the flags and an environment: `env` gives the value of a variable.
    ///
    /// `NO_COLOR` counts when it is set and not empty (no-color.org). ASCII is chosen without the
    /// flag where the locale names a character set other than UTF-8 and on terminals that have no
    /// glyphs for check marks and bars (`TERM=linux`, `dumb`, `vt…`).
    pub fn from_env(color: ColorChoice, ascii: bool, env: impl Fn(&str) -> Option<String>) -> Caps {
        let get = |name: &str| env(name).filter(|v| !v.is_empty());
        let term = get("TERM").unwrap_or_default().to_ascii_lowercase();
        let color_term = get("COLORTERM").unwrap_or_default().to_ascii_lowercase();
        let able = if color_term == "truecolor" || color_term == "24bit" || term.ends_with("-direct") {
            ColorLevel::TrueColor
        } else if term.contains("256color") || matches!(term.as_str(), "alacritty" | "foot" | "xterm-kitty") {
            ColorLevel::Ansi256
        } else {
            ColorLevel::Ansi16
        };
        let color = match color {
            ColorChoice::Never => ColorLevel::None,
            ColorChoice::Always => able,
            ColorChoice::Auto if get("NO_COLOR").is_some() || term == "dumb" || term.starts_with("vt") => {
                ColorLevel::None
            }
            ColorChoice::Auto => able,
        };
        // The first of the three that is set decides, as in setlocale(3).
        let locale = get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")).unwrap_or_default();
        let charset = locale.split_once('.').map(|(_, c)| c.to_ascii_lowercase());
        let foreign_charset = charset.is_some_and(|c| !c.starts_with("utf-8") && !c.starts_with("utf8"));
        let poor_glyphs = matches!(term.as_str(), "linux" | "dumb") || term.starts_with("vt");
        Caps { color, ascii: ascii || foreign_charset || poor_glyphs }
    }
}

impl ColorLevel {
    /// The nearest colour that this level has. Named colours stay what they are from 16 colours on.
    pub fn fit(self, color: Color) -> Color {
        match (self, color) {
            (_, Color::Reset) | (ColorLevel::TrueColor, _) => color,
            (ColorLevel::None, _) => Color::Reset,
            (ColorLevel::Ansi256, Color::Rgb(r, g, b)) => Color::Indexed(to_256(r, g, b)),
            (ColorLevel::Ansi16, Color::Rgb(r, g, b)) => to_16(r, g, b),
            (ColorLevel::Ansi16, Color::Indexed(i)) if i >= 16 => {
                let (r, g, b) = of_256(i);
                to_16(r, g, b)
            }
            (_, color) => color,
        }
    }
}

/// Steps of one channel in xterm's 6×6×6 cube (indices 16-231).
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The nearest of indices 16-255: the colour cube or the 24 greys.
fn to_256(r: u8, g: u8, b: u8) -> u8 {
    let step = |v: u8| -> (u8, u8) {
        let i = match v {
            0..48 => 0,
            48..115 => 1,
            _ => ((u16::from(v) - 35) / 40) as u8,
        };
        (i, CUBE.get(usize::from(i)).copied().unwrap_or(255))
    };
    let ((ri, rv), (gi, gv), (bi, bv)) = (step(r), step(g), step(b));
    let mean = (u16::from(r) + u16::from(g) + u16::from(b)) / 3;
    let grey_step = (mean.saturating_sub(3) / 10).min(23) as u8;
    let grey = 8 + 10 * grey_step;
    if distance((r, g, b), (grey, grey, grey)) < distance((r, g, b), (rv, gv, bv)) {
        232 + grey_step
    } else {
        16 + 36 * ri + 6 * gi + bi
    }
}

/// What index 16-255 looks like.
fn of_256(i: u8) -> (u8, u8, u8) {
    if i >= 232 {
        let grey = 8 + 10 * (i - 232);
        return (grey, grey, grey);
    }
    let i = i.saturating_sub(16);
    let at = |n: u8| CUBE.get(usize::from(n)).copied().unwrap_or(255);
    (at(i / 36), at(i / 6 % 6), at(i % 6))
}

/// The usual look of the 16 named colours; terminals differ, the order of nearness hardly does.
const NAMED: [(Color, (u8, u8, u8)); 16] = [
    (Color::Black, (0, 0, 0)),
    (Color::Red, (205, 0, 0)),
    (Color::Green, (0, 205, 0)),
    (Color::Yellow, (205, 205, 0)),
    (Color::Blue, (0, 0, 238)),
    (Color::Magenta, (205, 0, 205)),
    (Color::Cyan, (0, 205, 205)),
    (Color::Gray, (229, 229, 229)),
    (Color::DarkGray, (127, 127, 127)),
    (Color::LightRed, (255, 0, 0)),
    (Color::LightGreen, (0, 255, 0)),
    (Color::LightYellow, (255, 255, 0)),
    (Color::LightBlue, (92, 92, 255)),
    (Color::LightMagenta, (255, 0, 255)),
    (Color::LightCyan, (0, 255, 255)),
    (Color::White, (255, 255, 255)),
];

fn to_16(r: u8, g: u8, b: u8) -> Color {
    NAMED.iter().min_by_key(|(_, seen)| distance((r, g, b), *seen)).map_or(Color::Reset, |(color, _)| *color)
}

fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> u32 {
    let d = |x: u8, y: u8| u32::from(x.abs_diff(y)).pow(2);
    d(a.0, b.0) + d(a.1, b.1) + d(a.2, b.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(choice: ColorChoice, vars: &[(&str, &str)]) -> Caps {
        Caps::from_env(choice, false, |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn colours_follow_flag_then_environment() {
        let rich = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")];
        assert_eq!(caps(ColorChoice::Auto, &rich).color, ColorLevel::TrueColor);
        assert_eq!(caps(ColorChoice::Never, &rich).color, ColorLevel::None);
        assert_eq!(caps(ColorChoice::Auto, &[("TERM", "tmux-256color")]).color, ColorLevel::Ansi256);
        assert_eq!(caps(ColorChoice::Auto, &[("TERM", "xterm")]).color, ColorLevel::Ansi16);
        assert_eq!(caps(ColorChoice::Auto, &[("TERM", "dumb")]).color, ColorLevel::None);
        let no_color = [("TERM", "xterm-256color"), ("NO_COLOR", "1")];
        assert_eq!(caps(ColorChoice::Auto, &no_color).color, ColorLevel::None);
        assert_eq!(caps(ColorChoice::Always, &no_color).color, ColorLevel::Ansi256);
        assert_eq!(caps(ColorChoice::Auto, &[("TERM", "xterm"), ("NO_COLOR", "")]).color, ColorLevel::Ansi16);
    }

    #[test]
    fn ascii_where_glyphs_are_missing() {
        assert!(!caps(ColorChoice::Auto, &[("TERM", "xterm")]).ascii);
        assert!(!caps(ColorChoice::Auto, &[("LANG", "C.UTF-8")]).ascii);
        assert!(caps(ColorChoice::Auto, &[("LANG", "de_DE.ISO-8859-1")]).ascii);
        assert!(!caps(ColorChoice::Auto, &[("LANG", "de_DE.ISO-8859-1"), ("LC_ALL", "en_US.utf8")]).ascii);
        assert!(caps(ColorChoice::Auto, &[("TERM", "linux")]).ascii);
        assert!(Caps::from_env(ColorChoice::Auto, true, |_| None).ascii);
    }

    #[test]
    fn colours_are_brought_down_to_the_nearest() {
        assert_eq!(ColorLevel::Ansi256.fit(Color::Rgb(255, 0, 0)), Color::Indexed(196));
        assert_eq!(ColorLevel::Ansi256.fit(Color::Rgb(128, 128, 128)), Color::Indexed(244));
        assert_eq!(ColorLevel::Ansi16.fit(Color::Rgb(250, 10, 10)), Color::LightRed);
        assert_eq!(ColorLevel::Ansi16.fit(Color::Indexed(46)), Color::LightGreen);
        assert_eq!(ColorLevel::Ansi16.fit(Color::Indexed(3)), Color::Indexed(3));
        assert_eq!(ColorLevel::None.fit(Color::Red), Color::Reset);
        assert_eq!(ColorLevel::TrueColor.fit(Color::Rgb(1, 2, 3)), Color::Rgb(1, 2, 3));
        for i in 16..=255 {
            let (r, g, b) = of_256(i);
            let back = to_256(r, g, b);
            assert_eq!(of_256(back), (r, g, b), "index {i}");
        }
    }
}
