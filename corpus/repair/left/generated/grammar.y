%{
// The grammar that parser.c was made from.
struct table {
    uint64_t tokens;
};
%}

%token WORD

%%

text:
    | text word
    ;

word:
      WORD
      {

    table->tokens += 1; //~ missing-flush
      }
    ;
