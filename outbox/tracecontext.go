package outbox

import (
	"strings"
)

// mergeContext checks the W3C values that the message sets itself and fills
// what it leaves open from ambient, which is clean.
func mergeContext(own *ContextFields, ambient ContextFields) error {
	if err := checkTraceParent(own.TraceParent); err != nil {
		return err
	}
	if err := checkTraceState(own.TraceState); err != nil {
		return err
	}
	if own.TraceState != "" && own.TraceParent == "" {
		return invalid("tracestate %.64q stands without a traceparent: set both or neither", own.TraceState)
	}
	if own.CorrelationID == "" {
		own.CorrelationID = ambient.CorrelationID
	}
	if own.CausationID == "" {
		own.CausationID = ambient.CausationID
	}
	// One trace's state is meaningless beside another's parent.
	if own.TraceParent == "" {
		own.TraceParent, own.TraceState = ambient.TraceParent, ambient.TraceState
	}
	return nil
}

// checkTraceParent checks the syntax of W3C Trace Context, version 00 and what
// it asks of later versions. "" is none.
func checkTraceParent(s string) error {
	if s == "" {
		return nil
	}
	const length = 55 // 2-32-16-2
	bad := func(why string) error {
		return invalid("traceparent %.128q %s: use version-traceid-parentid-flags in lower-case hexadecimal, as in 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", s, why)
	}
	if len(s) < length {
		return bad("is too short")
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:length]
	switch {
	case s[2] != '-' || s[35] != '-' || s[52] != '-' || !lowerHex(version+trace+parent+flags):
		return bad("is malformed")
	case version == "ff":
		return bad("has the forbidden version ff")
	case version == "00" && len(s) > length, len(s) > length && s[length] != '-':
		return bad("is too long for its version")
	case strings.Trim(trace, "0") == "":
		return bad("has a trace id of zeros")
	case strings.Trim(parent, "0") == "":
		return bad("has a parent id of zeros")
	}
	return checkText("traceparent", s, MaxName)
}

func lowerHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// maxTraceMembers is the W3C limit of a tracestate list.
const maxTraceMembers = 32

// checkTraceState checks the syntax of W3C Trace Context: at most 32 members
// key=value, separated by commas and spaces, no key twice. "" is none.
func checkTraceState(s string) error {
	if s == "" {
		return nil
	}
	if err := checkText("tracestate", s, MaxState); err != nil {
		return err
	}
	keys := make([]string, 0, maxTraceMembers)
	for member := range strings.SplitSeq(s, ",") {
		member = strings.Trim(member, " ")
		if member == "" {
			continue // W3C allows empty members
		}
		key, value, ok := strings.Cut(member, "=")
		if !ok || !traceKey(key) || !traceValue(value) {
			return invalid("tracestate member %.128q is malformed: use key=value with a lower-case key", member)
		}
		for _, k := range keys {
			if k == key {
				return invalid("tracestate key %q stands twice", key)
			}
		}
		if len(keys) == maxTraceMembers {
			return invalid("tracestate has more than %d members", maxTraceMembers)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return invalid("tracestate %.64q has no members: leave it empty", s)
	}
	return nil
}

func traceKey(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '-' || c == '*' || c == '/' || c == '@'):
		default:
			return false
		}
	}
	return true
}

func traceValue(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e || s[i] == '=' {
			return false
		}
	}
	return true
}
