// Package meter measures what a run costs: processor time of this process and
// of a local server, statements, write-ahead log, dead tuples.
package meter
