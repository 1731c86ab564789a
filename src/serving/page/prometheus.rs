//! The text format of Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::borrow::Cow;

/// One sample: a line that is no comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// Its name, with colons as they stand.
    pub name: &'a str,
    /// Names and values of its labels, in their order.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Its value; may be no number.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_ref())
    }
}

/// The samples whose names are wanted, in their order. Lines that can not be read are passed over, one by
/// one; a time stamp and an exemplar behind the value are not looked at.
pub fn samples<'a>(body: &'a [u8], wanted: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = Sample<'a>> {
    // A name is looked at before its line is: most of a page are buckets of histograms.
    body.split(|b| *b == b'\n').filter_map(move |line| {
        let line = line.trim_ascii();
        let end = line.iter().position(|b| matches!(b, b'{' | b' ' | b'\t'))?;
        let name = std::str::from_utf8(line.get(..end)?).ok().filter(|n| !n.starts_with('#') && wanted(n))?;
        let rest = std::str::from_utf8(line.get(end..)?).ok()?;
        sample(name, rest)
    })
}

fn sample<'a>(name: &'a str, rest: &'a str) -> Option<Sample<'a>> {
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?;
    // `NaN`, `+Inf` and `-Inf` are among what is read so.
    let value = value.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Labels up to the closing brace, and what follows it.
#[allow(clippy::type_complexity)]
fn labels(mut rest: &str) -> Option<(Vec<(&str, Cow<'_, str>)>, &str)> {
    let mut out = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((out, rest));
        }
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start().strip_prefix('"')?;
        let (value, after) = quoted(after)?;
        out.push((name.trim(), value));
        rest = after;
    }
}

/// The text up to a quote that is not escaped, and what follows it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text.as_bytes().get(end) == Some(&b'"') {
        return Some((Cow::Borrowed(text.get(..end)?), text.get(end + 1..)?));
    }
    let mut value = text.get(..end)?.to_string();
    let mut chars = text.get(end..)?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), text.get(end + at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type Own = (String, Vec<(String, String)>, f64);

    fn read(text: &str) -> Vec<Own> {
        let own = |s: Sample<'_>| {
            let labels = s.labels.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            (s.name.to_string(), labels, s.value)
        };
        samples(text.as_bytes(), |_| true).map(own).collect()
    }

    fn pair(a: &str, b: &str) -> (String, String) {
        (a.to_string(), b.to_string())
    }

    #[test]
    fn every_shape_of_a_line_is_read() {
        let text = "# HELP a text\n# TYPE a gauge\na 1\nb:c{} 2.5e3 1395066363000\n d { x = \"1\" , y=\"a}b,c=\\\"d\\\\n\\n\",} -Inf\r\n\
                    e_total{le=\"+Inf\"} 3 # {trace=\"1\"} 0.5\nf NaN";
        let got = read(text);
        assert_eq!(got[0], ("a".to_string(), vec![], 1.0));
        assert_eq!(got[1], ("b:c".to_string(), vec![], 2500.0));
        assert_eq!(got[2].0, "d");
        assert_eq!(got[2].1, vec![pair("x", "1"), pair("y", "a}b,c=\"d\\n\n")]);
        assert_eq!(got[2].2, f64::NEG_INFINITY);
        assert_eq!(got[3], ("e_total".to_string(), vec![pair("le", "+Inf")], 3.0));
        assert!(got[4].2.is_nan());
        assert_eq!(got.len(), 5);
    }

    #[test]
    fn broken_lines_cost_only_themselves() {
        let got = read("a{x=\"1} 1\nb{x=1} 2\nc{x=\"1\" 3\nd\ne{\nf x\ng{x=\"\\\nh 8");
        assert_eq!(got.iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["h"]);
        assert!(samples(b"a\xff{x=\"1\"} 1\n\xc3\x28 2\nb{x=\"\xff\"} 1", |_| true).next().is_none());
    }
}
