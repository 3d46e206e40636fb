package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// safe is a text for a terminal: what could move the cursor, or hide or turn
// around its neighbours, is escaped as Go does it. Texts come from producers
// and servers.
func safe(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// cut is the beginning of a safe text, at most so many characters long.
func cut(s string, most int) string {
	s = safe(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// showKey tells text from bytes: "a" is --key a, hex:61 is --key-hex 61.
func showKey(key []byte) string {
	switch {
	case key == nil:
		return "-"
	case isText(key):
		return strconv.Quote(string(key))
	}
	return "hex:" + hex.EncodeToString(key)
}

// isText tells whether b can be typed and read as it is.
func isText(b []byte) bool { return utf8.Valid(b) && safe(string(b)) == string(b) }

// printJSON prints v on a line. Characters that a terminal might obey are
// escaped, which changes no value: only JSON strings hold any.
func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < 0x7f || !unprintable(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}

// plural is "1 key" or "2 keys".
func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
