//go:build oracle

package app

import _ "github.com/sijms/go-ora/v2" // driver oracle

const hasOracle = true
