// Package scenario has the questions that the bench asks, and the runner that
// asks them: contestants in turns, each in an empty place, measured alike.
package scenario
